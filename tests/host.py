"""One of two processes that train together, for the tests of many hosts.

python -m tests.host PORT PROCESS WORKDIR
"""

import dataclasses
import sys

import numpy as np
from jax.experimental import multihost_utils

from bert_jax import errors
from bert_jax.parallel import agreement, device_mesh, distributed
from bert_jax.trainer import fit, task
from bert_jax.workdir import claim
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
  claim.check_shared(workdir)
  with distributed.leaving_together():
    c = training.small_config()
    c.checkpoint.minutes = 1e-9
    _, kept, _ = fit.fit(c, make_task(c), workdir)
  wanted = [training.make_batch(1000 + i)['input_ids'][:, 0] for i in (0, 1)]
  same = np.array_equal(kept[task.HELD_OUT], np.concatenate(wanted))
  print(f'predictions: {same}', file=out)
  print('left', file=out)


def make_task(c):
  """Returns a task that keeps the first id of each held-out row."""

  def make_objective(how=None, phase=None):
    made = training.make_objective(c, how)

    def compute(params, batch, key):
      return made.compute(params, batch, key)[0], batch['input_ids'][:, 0]

    return dataclasses.replace(
      made, compute=compute, computed_as=make_objective
    )

  return dataclasses.replace(
    training.make_task(c),
    objective=make_objective(),
    collect=lambda kept, phase, i, found: [*(kept or []), *found.tolist()],
  )


if __name__ == '__main__':
  main(*sys.argv[1:])
