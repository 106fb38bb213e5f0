"""Shows the rows of a past step of pre-training, each with its loss and text.

  python -m bert_jax.replay --workdir=DIR --step=N

Step N is numbered as in the log. For each row, the largest loss first, a line
has its number in the batch, its part of the batch's loss, the mean losses of
its masked tokens and sentence pairs, and its text, with stars around the masked
tokens. They are computed without dropout, with the weights of the newest
checkpoint before the step.

It runs on one device, whatever the run used: a CPU, unless JAX_PLATFORMS names
another. The run may be training; nothing is written to its directory.
"""

import os

from absl import flags

from bert_jax.runtime import cli


def main():
  import jax

  # Accelerators may be busy with the run.
  if 'JAX_PLATFORMS' not in os.environ:
    jax.config.update('jax_platforms', 'cpu')
  from bert_jax.pretraining import replay
  from bert_jax.runtime import storage

  values = flags.FLAGS
  lines = replay.describe(storage.resolve(values.workdir), values.step)
  print('\n'.join(lines))


def _define_flags():
  flags.DEFINE_string('workdir', None, 'Directory of the run.')
  flags.DEFINE_integer('step', None, 'Step to replay, as in the log, from 1.')
  flags.mark_flags_as_required(['workdir', 'step'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, resumes=False)
