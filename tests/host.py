"""One of two processes that train together, for the tests of many hosts.

python -m tests.host PORT PROCESS WORKDIR
"""

import sys

import numpy as np
from jax.experimental import multihost_utils

from bert_jax import errors
from bert_jax.parallel import agreement, device_mesh, distributed, watchdog
from bert_jax.train import fit
from bert_jax.workdir import shared
from tests import training


def main(port, process, workdir):
  """Compares facts, prints rows and batches, trains."""
  distributed.start(f'localhost:{port}', 2, int(process))
  out = sys.stderr  # start() silences the second process's stdout
  try:
    agreement.check_same({'seed': 3 + int(process), 'steps': 6})
  except errors.UserError as error:
    print(f'refused: {error}', file=out)
  agreement.check_same({'steps': 6})
  print(f'largest: {distributed.find_largest(10 + int(process))}', file=out)
  mesh = device_mesh.make_mesh()
  rows = device_mesh.find_own_rows(mesh, training.ROWS)
  print(f'rows: {rows.tolist()}', file=out)
  whole = training.make_batch(0)
  batch = device_mesh.put_batch(mesh, training.take(whole, rows))
  found = multihost_utils.process_allgather(batch, tiled=True)
  same = all(np.array_equal(found[name], whole[name]) for name in whole)
  print(f'batch: {same}', file=out)
  shared.check_shared(workdir)
  with watchdog.watch_hosts() as pulse:
    c = training.small_config()
    fit.fit(c, training.make_task(c), workdir, pulse=pulse)
  print('left', file=out)


if __name__ == '__main__':
  main(*sys.argv[1:])
