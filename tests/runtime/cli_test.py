"""What a command ends with."""

import json
import os
import pathlib
import re

import pytest

from bert_jax import errors
from bert_jax.config import FIELDS
from bert_jax.data import vocab
from bert_jax.runtime import cli
from tests import commands, processes


def test_flags_are_put_in_order_and_know_the_home_folder(monkeypatch):
  monkeypatch.setenv('HOME', '/home/me')
  given = ['x', '--workdir=~/a', '--config.seed=1', '~/b', '--config=c.py']
  given += ['--config.data.input=train=~/a,dev=~/b', '--', '--c=~/d']
  assert cli._arrange(given) == [
    *('x', '--config=c.py', '--workdir=/home/me/a', '--config.seed=1', '~/b'),
    *('--config.data.input=train=/home/me/a,dev=/home/me/b', '--', '--c=~/d'),
  ]

  assert cli._arrange(['x', '--a=1', '--config', 'c.py', 'b']) == [
    *('x', '--config=c.py', '--a=1', 'b')
  ]


def test_the_last_of_equal_flags_of_a_config_holds():
  given = ['x', '--config=c.py', '--config.a.b=1', '--d=1', '--d=2']
  assert cli._arrange([*given, '-config.a.b=2', '--config.a.bc=3']) == [
    *('x', '--config=c.py', '--d=1', '--d=2', '-config.a.b=2'),
    '--config.a.bc=3',
  ]


@pytest.mark.parametrize(
  ('error', 'code', 'said'),
  [
    (
      errors.UserError('\x1b[2J x\nis wrong.'),
      *(1, 'error: \\x1b[2J x is wrong.'),
    ),
    (OSError(5, 'a line\nand more'), 70, 'error: a line and more'),
    (OSError(5, 'Input', 'x'), 70, "error: [Errno 5] Input: 'x'"),
    (ZeroDivisionError(), 70, 'ZeroDivisionError'),  # a bug
  ],
)
def test_a_command_ends_with_a_code_and_says_why(error, code, said, capsys):
  assert cli.report(error) == code
  assert capsys.readouterr().err == f'{said}\n'


_PRINT = """
from bert_jax.runtime import cli

def main():
  print('한국어', flush=True)

cli.run(main)
"""


def test_words_that_the_terminal_cannot_show_are_no_error():
  env = {**os.environ, 'PYTHONIOENCODING': 'latin-1'}
  done = processes.run_code(_PRINT, env=env)
  shown = '\\ud55c\\uad6d\\uc5b4\n'
  assert (done.returncode, done.stdout, done.stderr) == (0, shown, '')


_FLAGS = """
import json, os, sys
from absl import flags
from ml_collections import config_flags
from bert_jax.config import get_meanings
from bert_jax.runtime import cli

def main():
  print(flags.FLAGS.config.data.input)

config_flags.DEFINE_config_file('config', None, 'The experiment, e.g. a.py:b.')
flags.DEFINE_string('workdir', None, 'Directory of the run.')
flags.mark_flags_as_required(['config', 'workdir'])
if sys.argv[1].startswith('['):  # several command lines, each in a process
  here = os.getcwd()
  os.chdir(sys.argv[2])
  for number, given in enumerate(json.loads(sys.argv[1])):
    out = os.open(str(number), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    if not os.fork():
      sys.argv[1:] = given
      os.dup2(out, 2)
      os.chdir(here)
      break
    os.write(out, b'%d' % os.waitstatus_to_exitcode(os.wait()[1]))
  else:
    sys.exit()
cli.run(main, fields=get_meanings())
"""
_GIVEN = '--workdir=x', '--config=configs/tiny.py'
_CONFIGS = sorted(
  path.stem
  for path in pathlib.Path(processes.ROOT, 'configs').glob('*.py')
  if path.stem != 'tables'
)


_WRONG = {
  'a flag is missing': (
    [],
    'error: flag --config=None: Flag --config must have a value other than None. '
    'flag --workdir=None: Flag --workdir must have a value other than None. '
    'See --help.',
  ),
  'near': (
    [*_GIVEN, '--config.data.imput=x'],
    "error: a flag names no field of the config: 'imput'; did you mean 'input'?",
  ),
  'nothing near': (
    [*_GIVEN, '--config.zzz=x'],
    "error: a flag names no field of the config: 'zzz'; --help beside "
    '--config lists them.',
  ),
  'a part': (
    [*_GIVEN, '--config.learning_rate=x'],
    "error: a flag names no field of the config: 'learning_rate'; did you "
    'mean --config.optimizer.learning_rate?',
  ),
  'no config': (
    [*_GIVEN, '--learning_rate=x'],
    "error: Unknown command line flag 'learning_rate'; did you mean "
    '--config.optimizer.learning_rate? See --help.',
  ),
  'no file': (
    [_GIVEN[0], '--config=nope.py:smoke', '--config.data.input=x'],
    'error: cannot read --config=nope.py: No such file or directory; give '
    f'a file, or one of {", ".join(_CONFIGS)}. See --help.',
  ),
  'no function': (
    [_GIVEN[0], '--config=bert_jax/errors.py'],
    'error: the file of --config has no function get_config; see configs/.',
  ),
  'no flag': (
    [*_GIVEN, 'b.txt'],
    "error: 'b.txt' is not a flag; quote globs, and see --help.",
  ),
  'an argument': (
    [_GIVEN[0], f'{_GIVEN[1]}:sede=3'],
    "error: config argument 'sede' is unknown; did you mean seed or schedule or select? "
    'See --help.',
  ),
}
# Bodies of get_config, in files of the user's.
_BODIES = 'return nonsense', 'raise AttributeError("modle")', '{}["modle"]'


@pytest.fixture(scope='module')
def printed(tmp_path_factory):
  """Returns what each of _WRONG, and each of _BODIES, prints, and its code."""
  folder = tmp_path_factory.mktemp('flags')
  given = [words for words, _ in _WRONG.values()]
  for body in _BODIES:
    path = folder / f'{len(given)}.py'
    path.write_text(f'def get_config():\n  {body}\n')
    given.append([_GIVEN[0], f'--config={path}'])
  done = processes.run_code(_FLAGS, json.dumps(given), str(folder))
  assert done.returncode == 0, done.stderr
  said = [(folder / str(i)).read_text() for i in range(len(given))]
  return dict(zip([*_WRONG, *_BODIES], said, strict=True))


@pytest.mark.parametrize('name', _WRONG)
def test_a_wrong_flag_gets_one_line(printed, name):
  assert printed[name] == f'{_WRONG[name][1]}\n1'


@pytest.mark.parametrize('body', _BODIES)
def test_an_error_in_a_config_file_is_a_mistake_with_a_traceback(printed, body):
  assert re.search(r'\.py", line 2, in get_config\n(.|\n)*\n1$', printed[body])


def test_an_output_that_is_an_input_is_refused(tmp_path, monkeypatch):
  """By another name, too: it would be lost."""
  (tmp_path / 'link.tsv').symlink_to(tmp_path / 'own.tsv')
  (tmp_path / 'own.tsv').write_text('a\tb\n')
  monkeypatch.chdir(tmp_path)
  given = [f'--input={tmp_path}/own.tsv', '--output=link.tsv']
  with pytest.raises(errors.UserError, match='link.tsv is a file of --input'):
    commands.run(vocab, *given)
  assert (tmp_path / 'own.tsv').read_text() == 'a\tb\n'


def test_help_beside_a_config_lists_every_field_with_value_and_meaning():
  done = processes.run_code(_FLAGS, '--config=tiny:seed=7', '--help')
  assert (done.returncode, done.stderr) == (0, '')
  assert 'Directory of the run.' in done.stdout
  text = "  --config.data.input='python-docs'\n    files, globs, folders,"
  assert text in done.stdout
  assert '--config.seed=7\n    seed of data, masks,' in done.stdout
  named = re.findall(r'--config\.([\w.]+)=', done.stdout)
  assert sorted(named) == sorted(FIELDS)


def test_a_config_of_the_package_is_found_by_its_name(tmp_path, monkeypatch):
  theirs = f'{processes.ROOT}/configs/tiny.py:smoke'
  monkeypatch.chdir(tmp_path)
  assert cli.find_config('tiny:smoke') == theirs
  assert cli.find_config('configs/tiny.py:smoke') == theirs
  (tmp_path / 'tiny').touch()  # a file of the user's comes first
  assert cli.find_config('tiny:smoke') == 'tiny:smoke'
