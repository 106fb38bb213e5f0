"""Compiles the step of flax_bert.py without a TPU; see benchmarks/tpu/aot.py.

Rows are sharded over the devices, parameters and optimizer are replicated;
bfloat16 computation, random bits from `rbg`. Argument and output are those of
aot_compile.py.
"""

import json
import math
import os
import sys

for name, value in {
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  'TPU_ACCELERATOR_TYPE': 'v5litepod-4',
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
}.items():
  os.environ.setdefault(name, value)

import flax_bert  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402


def shapes(settings, model, tx):
  """Returns (params, opt_state, batch, key) without sharding."""
  rows, length = settings['rows'], settings['length']
  token = jax.ShapeDtypeStruct((rows, length), np.int32)
  names = 'input_ids', 'input_mask', 'segment_ids', 'labels'
  batch = {name: token for name in names}
  batch['next_sentence_labels'] = jax.ShapeDtypeStruct((rows,), np.int32)
  key = jax.eval_shape(lambda: jax.random.key(0, impl='rbg'))
  params = jax.eval_shape(lambda k: model.init_weights(k, (1, 8)), key)
  return params, jax.eval_shape(tx.init, params), batch, key


def device_bytes(tree) -> int:
  return sum(math.prod(x.shape) * x.dtype.itemsize for x in tree)


def memory_of(found, params, opt_state):
  """Returns the bytes of a device by kind, as in `compile_step.Memory`."""
  parameters, optimizer = map(
    device_bytes, (jax.tree.leaves(params), jax.tree.leaves(opt_state))
  )
  arguments = found.argument_size_in_bytes
  return {
    'parameters': parameters,
    'optimizer': optimizer,
    'batch': arguments - parameters - optimizer,
    'temporary': found.peak_memory_in_bytes - arguments,
    'program': found.generated_code_size_in_bytes,
  }


def main():
  with open(sys.argv[1]) as file:
    case = json.load(file)
  settings = case['settings']
  model = flax_bert.model_of(settings, _do_init=False)
  tx = flax_bert.optimizer(settings['config'])
  devices = topologies.get_topology_desc(
    settings['topology'], platform='tpu', **settings['options']
  ).devices
  mesh = jax.sharding.Mesh(np.array(devices), ('data',))
  params, opt_state, batch, key = shapes(settings, model, tx)

  def place(tree, spec):
    placed = NamedSharding(mesh, spec)
    return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placed), tree
    )

  step = jax.jit(flax_bert.updater(model, tx), donate_argnums=(0, 1))
  compiled = step.lower(
    place(params, P()),
    place(opt_state, P()),
    place(batch, P('data')),
    place(key, P()),
  ).compile()
  with open(case['path'], 'w') as file:
    file.write(compiled.as_text())
  memory = memory_of(compiled.memory_analysis(), params, opt_state)
  print(json.dumps({'fits': True, 'memory': memory}))


if __name__ == '__main__':
  main()
