"""Compiles one training step without a TPU; started by aot.py.

  python benchmarks/tpu/aot_compile.py CASE

CASE is a JSON file with `settings` (see `aot_programs.settings_of`) and the
`path` for the text of the program; the memory that it needs is printed as JSON,
in bytes.
"""

import dataclasses
import json
import sys

from bert_jax import config as config_lib
from bert_jax.hardware import topology
from bert_jax.parallel import device_mesh
from bert_jax.preflight import compile_step
from bert_jax.train import task


def get_config(settings):
  """Returns the recipe of configs/base.py or large.py, with one phase."""
  c = config_lib.apply_arguments(
    config_lib.pretraining(settings['size']),
    f'dtype=bfloat16,rng=rbg,num_layers={settings["layers"]}',
  )
  c.model.dropout = c.model.attention_dropout = settings['dropout']
  c.data.pack = settings['pack']
  c.phases.update(
    seq_length=(settings['length'],),
    max_predictions=(settings['predictions'],),
    batch_size=(settings['rows'],),
    steps=(1_000_000,),
    accumulate=(1,),
  )
  return c


def main():
  with open(sys.argv[1]) as file:
    case = json.load(file)
  settings = case['settings']
  config = get_config(settings)
  devices = compile_step.describe_devices(topology.parse(settings['topology']))
  mesh = device_mesh.make_mesh(1, devices=devices)
  found = compile_step.compile_step(config, task.list_phases(config)[0], mesh)
  if found.text is not None:
    with open(case['path'], 'w') as file:
      file.write(found.text)
  memory = dataclasses.asdict(found.memory)
  print(json.dumps({'fits': found.fits, 'memory': memory}))


if __name__ == '__main__':
  main()
