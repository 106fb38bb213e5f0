"""Compares compiled training steps with reviewed golden files.

  python benchmarks/tpu/golden.py [CASE ...]
  python benchmarks/tpu/golden.py --update [CASE ...]

Each case is a step of two layers, compiled without a TPU: how each parameter is
stored and used, collectives by kind with their bytes, kernels, and, within 3 %,
the estimated cycles and the temporary memory. Differences from
benchmarks/tpu/golden/CASE.json are shown, and the exit code is 1. --update
writes the new values: review them with git diff. With other versions of jax or
libtpu than those of the file, estimates are not compared. A case takes one to two
minutes on two cores.
"""

import argparse
import importlib.metadata
import json
import os
import re
import sys
import time

import hlo
import jax

from bert_jax import config, errors, param_names, tasks
from bert_jax.hardware import accelerators
from bert_jax.parallel import device_mesh, partition
from bert_jax.preflight import compile_step
from bert_jax.runtime import files
from bert_jax.trainer import programs, task, tuning

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'golden')
LAYERS = 2
TOLERANCE = 0.03  # of estimates


# {name: size, phase, devices over which a layer is split, slices of v5e:2x2}
CASES = {
  'base_128': ('base', 0, 1, 1),
  'base_512': ('base', 1, 1, 1),
  'large_128': ('large', 0, 1, 1),
  'large_512': ('large', 1, 1, 1),
  'base_128_model_2': ('base', 0, 2, 1),
  'base_128_slices_2': ('base', 0, 1, 2),
}


def examine(size, phase, model, slices) -> dict[str, dict]:
  """Compiles a case; returns the facts that a golden file holds."""
  c = config.pretraining(size)
  c.model.dtype, c.model.num_layers = 'bfloat16', LAYERS
  c.mesh.model = model
  topology = accelerators.parse('v5e:2x2', slices)
  mesh = device_mesh.make_mesh(model, compile_step.describe_devices(topology))
  phase = task.list_phases(c)[phase]
  compiled = compile_training(c, phase, mesh)
  if compiled.text is None:
    raise ValueError('it does not fit the memory of a device.')
  program = hlo.read(compiled.text)
  return {
    'versions': {
      name: importlib.metadata.version(name) for name in ('jax', 'libtpu')
    },
    'parameters': _shardings(c, mesh),
    'collectives': {
      kind: f'{n} with {program.bytes[kind]:,} bytes'
      for kind, n in program.collectives.items()
    },
    'kernels': program.kernels,
    'estimates': {
      'cycles': program.cycles,
      'temporary_bytes': compiled.memory.temporary,
    },
  }


def compile_training(c, phase, mesh) -> compile_step.Compiled:
  """Compiles the training step of a phase for a mesh, as `fit.fit` would."""
  made = tasks.get(c).make_objective(c)
  made = tuning.tune(made, mesh, phase)
  listed = programs.list_phase(c, made, mesh, phase)
  step = next(p for p in listed if p.name == programs.TRAIN)
  (outcome,) = programs.compile_all([step], 'tpu', lambda line: None)
  if outcome.refused:
    programs.get_executables([outcome])
  return compile_step.examine(outcome, 'tpu')


def _shardings(c, mesh) -> dict:
  """Returns {name: how it is kept and used}, '[data, -], used as [-, -]'.

  Layers differ in their number only: the first stands for all.
  """

  def text(spec):
    return f'[{", ".join(axis or "-" for axis in spec)}]'

  learnt = tasks.get(c).make_objective(c)
  _, shapes, layout = programs.plan_initial_state(c.optimizer, learnt, mesh)
  kept = param_names.flatten(layout.params)
  found = {}
  for name, x in param_names.flatten(shapes.params).items():
    used = text(partition.compute_spec(mesh, name, x.shape))
    line = f'{text(kept[name].spec)}, used as {used}'
    name = re.sub(r'layer_\d+', 'layer', name)
    if found.setdefault(name, line) != line:
      raise ValueError(f'{name}: {line} in one layer, {found[name]} in another')
  return found


def differences(golden: dict, found: dict) -> list[str]:
  """Lists how the facts of a case differ from those last reviewed.

  With other versions of jax or libtpu, estimates are not compared.
  """
  lines, same = [], golden['versions'] == found['versions']
  for part in ('parameters', 'collectives', 'kernels', *['estimates'] * same):
    was, now = golden[part], found[part]
    for name in dict.fromkeys([*was, *now]):
      old, new = was.get(name), now.get(name)
      near = part == 'estimates' and abs(new - old) <= TOLERANCE * old
      if old != new and not near:
        lines.append(f'{part}.{name} was {old}, is {new}')
  return lines


def read(name: str) -> dict:
  """Returns the golden facts of a case."""
  with open(os.path.join(FOLDER, f'{name}.json')) as file:
    found = json.load(file)
  if isinstance(found['parameters'], str):  # they are those of another case
    found['parameters'] = read(found['parameters'])['parameters']
  return found


def write(name: str, facts: dict):
  """Writes the golden facts of a case; equal parameters only once."""
  first = next(iter(CASES))
  if name != first and read(first)['parameters'] == facts['parameters']:
    facts = facts | {'parameters': first}
  files.write_json(os.path.join(FOLDER, f'{name}.json'), facts)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    'cases', nargs='*', help=f'default: all of {", ".join(CASES)}'
  )
  parser.add_argument(
    '--update', action='store_true', help='write the golden files'
  )
  values = parser.parse_args()
  unknown = [name for name in values.cases if name not in CASES]
  if unknown:
    parser.error(f'no case {unknown[0]}; there are {", ".join(CASES)}')
  chosen = values.cases or list(CASES)
  # Only the compiler is used; do not occupy accelerators of this machine.
  jax.config.update('jax_platforms', 'cpu')
  good = []
  for i, name in enumerate(chosen):
    print(f'{i + 1} of {len(chosen)}: compiling {name} ...', flush=True)
    start = time.monotonic()
    found = examine(*CASES[name])
    print(f'  compiled in {time.monotonic() - start:.0f} s')
    if values.update:
      write(name, found)
    else:
      lines = differences(read(name), found)
      print('\n'.join([*lines, f'  {len(lines)} differences']))
      good.append(not lines)
  sys.exit(0 if all(good) else 1)


if __name__ == '__main__':
  try:
    main()
  except errors.UserError as error:
    sys.exit(f'error: {error}')
