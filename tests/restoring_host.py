"""One of two processes that restore together, for the tests of checkpoints.

python -m tests.restoring_host PORT PROCESS DIRECTORY
"""

import os
import sys

import jax
import numpy as np

from bert_jax.parallel import device_mesh, distributed
from bert_jax.workdir import checkpoint


def main(port, process, directory):
  """Saves steps 1 and 2, damages what host 1 alone reads of 2, and restores."""
  distributed.start(f'localhost:{port}', 2, int(process))
  mesh = device_mesh.make_mesh()
  layout = {
    'step': device_mesh.replicate(mesh),
    'w': device_mesh.row_sharding(mesh),  # [4, 1000]
  }
  put = distributed.jit_put(layout)
  with checkpoint.Checkpoints(directory, 3, 0) as checkpoints:
    for step in (1, 2):
      w = step * np.arange(4000, dtype=np.float32).reshape(4, 1000)
      checkpoints.save(step, put({'step': np.int32(step), 'w': w}))
  distributed.first_then_all('damage', lambda: damage_half(directory))
  template = jax.tree.map(
    lambda x, sharding: jax.ShapeDtypeStruct(
      x.shape, x.dtype, sharding=sharding
    ),
    {'step': np.int32(0), 'w': np.zeros((4, 1000), np.float32)},
    layout,
  )
  with checkpoint.Checkpoints(directory, 3, 0) as checkpoints:
    state, _ = checkpoints.restore(template)
  # start() silences the second process's stdout
  print(f'restored {int(state["step"])}', file=sys.stderr)


def damage_half(directory):
  """Truncates the arrays that the second process wrote at step 2."""
  folder = os.path.join(directory, '2', 'state', 'ocdbt.process_1', 'd')
  for name in os.listdir(folder):
    path = os.path.join(folder, name)
    os.truncate(path, os.path.getsize(path) // 2)


if __name__ == '__main__':
  main(*sys.argv[1:])
