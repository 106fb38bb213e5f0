"""Runs a command of bert_jax, or lists them.

  bert_jax main --config=tiny --workdir=/tmp/bert_tiny
  python -m bert_jax fill_mask --help

bert_jax COMMAND is the same as python -m bert_jax.COMMAND.
"""

import runpy
import sys

COMMANDS = {
  'main': 'does everything: data, training, evaluation, export; fine-tuning, too',
  'data.vocab': 'trains a WordPiece vocabulary',
  'data.prepare': 'makes training data ahead of time',
  'preflight': 'says whether a run fits accelerators that you do not have yet',
  'report': 'writes a page with the curves of runs',
  'fill_mask': 'predicts masked words',
  'predict': 'predicts for a file, with a fine-tuned model',
  'score': 'scores sentences and minimal pairs, without training',
  'features': 'writes hidden states and attention of sentences',
  'convert': 'writes a model as a folder for transformers',
  'replay': 'shows the rows of a past step, each with its loss',
  'sweep': "fine-tunes with every combination of some fields' values",
  'reproduce': 'trains a table of the paper, and tests its claims',
}


def main():
  """Runs the command that the first argument names."""
  name = sys.argv[1] if len(sys.argv) > 1 else '--help'
  if name in COMMANDS:
    del sys.argv[1]
    runpy.run_module(f'bert_jax.{name}', run_name='__main__', alter_sys=True)
  elif name in ('--help', '-h'):
    width = max(map(len, COMMANDS))
    lines = (f'  {name:{width}}  {what}' for name, what in COMMANDS.items())
    print(__doc__, 'commands:', *lines, sep='\n')
  else:
    known = ', '.join(COMMANDS)
    sys.exit(f'error: {name!r} is not a command; give one of {known}.')


if __name__ == '__main__':
  main()
