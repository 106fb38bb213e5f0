"""Writes a page on runs: curves, what they predict, their data and cost.

  python -m bert_jax.report --workdir=runs/tiny

The page is one HTML file that needs no network. Give several directories to see
the runs, such as those of a sweep, side by side. They may still be training. Each
kept checkpoint guesses the same held-out words, so keep some
(--config.checkpoint.keep_every) to see what is learnt when.
"""

import os

from absl import flags

from bert_jax import errors
from bert_jax.runtime import cli


def main():
  import jax

  # The runs may be using the accelerators.
  jax.config.update('jax_platforms', 'cpu')
  from bert_jax.report import page
  from bert_jax.runtime import files, machine, storage

  folders = [storage.resolve(x) for x in flags.FLAGS.workdir or ['']]
  output = flags.FLAGS.output or os.path.join(folders[0], 'report.html')
  machine.keep_programs()
  text = page.render([page.read(x) for x in folders])
  storage.make_folder(os.path.dirname(output))
  # A link is replaced: in a folder from elsewhere it may lead anywhere.
  files.write_text(output, text)
  print(f'wrote {output}: {errors.count(len(folders), "run")}')


def _define_flags():
  flags.DEFINE_list('workdir', None, 'Directories of runs.')
  flags.DEFINE_string('output', '', 'The .html to write; replaced if there.')
  flags.mark_flags_as_required(['workdir'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
