"""Shows what made a step's loss jump or its update non-finite.

  python -m bert_jax.replay --workdir=DIR --step=N

Rebuilds the batch of step N, numbered as in the log, and computes loss and
gradient of each of its rows with the weights of the nearest checkpoint before
it. Prints all rows, the largest loss first, and the first ones in full: their
text, with stars around the masked tokens, and what the model expected instead.

share      a row's part of the batch's loss
mlm, nsp   mean loss of the row's masked tokens and sentence pairs
gradient   norm of the gradient of the row's part of the loss

It runs on one device, whatever the run used: a CPU, unless JAX_PLATFORMS names
another. The run may be training; nothing is written to its directory.
"""

import os

from absl import flags

from bert_jax.runtime import cli

_SORTS = ('loss', 'gradient')


def main():
  import jax

  # Accelerators may be busy with the run.
  if 'JAX_PLATFORMS' not in os.environ:
    jax.config.update('jax_platforms', 'cpu')
  from bert_jax.pretraining import replay, replay_page, replay_rows
  from bert_jax.runtime import compile_cache, files, progress, storage

  values = flags.FLAGS
  compile_cache.use()
  found = replay.rebuild(storage.resolve(values.workdir), values.step)
  with progress.Progress(found.phase.batch_size, 'rows', 'replaying') as bar:
    measured = replay_rows.measure(found, bar.update)
  report = replay_page.make_report(found, measured, values.sort, values.rows)
  print('\n'.join(replay_page.render(report)))
  if values.json:
    figures = replay_page.make_json(report)
    files.write_file(values.json, lambda new: files.write_json(new, figures))


def _define_flags():
  flags.DEFINE_string('workdir', None, 'Directory of the run.')
  flags.DEFINE_integer('step', None, 'Step to replay, as in the log, from 1.')
  flags.DEFINE_enum('sort', 'loss', _SORTS, 'What the rows are sorted by.')
  flags.DEFINE_integer(
    'rows', 3, 'How many rows to show in full.', lower_bound=0
  )
  flags.DEFINE_string('json', None, 'File for all figures.')
  flags.mark_flags_as_required(['workdir', 'step'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
