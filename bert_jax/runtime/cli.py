"""Starts every command, finds the file of its --config, reports its errors."""

import logging
import os
import pathlib
import re
import runpy
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from absl import app, flags

import bert_jax
from bert_jax import errors
from bert_jax.runtime import machine, signals

# In a clone and in an installed wheel; setup.cfg says where a wheel has them.
_FOLDERS = (
  pathlib.Path(bert_jax.__file__).parents[1] / 'configs',
  pathlib.Path(sysconfig.get_path('data'), 'share', 'bert_jax', 'configs'),
)
_WIDTH = 80  # columns


def run(
  main: Callable[..., int | None],
  takes_arguments: bool = False,
  fields: Mapping[str, str] | None = None,
  resumes: bool = True,
):
  """Runs `main` under absl and exits with its result, or a code of `errors`.

  Args:
    takes_arguments: `main` gets argv without flags; otherwise nothing but flags
      may be given.
    fields: meanings of the fields of --config, which --help beside it lists.
    resumes: a command that does not, after a signal, has written nothing.
  """

  def guarded(argv):
    if argv[1:] and not takes_arguments:
      raise errors.UserError(
        f'{argv[1]!r} is not a flag; quote globs, and see --help.'
      )
    return main(argv) if takes_arguments else main()

  # At INFO, jax lists the accelerators that it did not find, matplotlib says that it
  # built its font list, and httpx, of the hub, names each request.
  for name in ('jax', 'matplotlib', 'httpx'):
    logging.getLogger(name).setLevel(logging.WARNING)
  machine.skip_absent_tpu()
  signals.watch_output()
  try:
    with signals.raising():
      app.run(guarded, flags_parser=lambda argv: _parse(argv, fields or {}))
  except (Exception, errors.Interrupted) as error:
    sys.exit(report(error, resumes))


def report(error: BaseException, resumes: bool = True) -> int:
  """Says on stderr why a program ends; returns its exit code.

  Of a bug, that is a traceback, of anything else a line.
  """
  if isinstance(error, errors.UserError | OSError):
    line = ' '.join(errors.get_message(error).splitlines())
    print('error:', errors.escape(line), file=sys.stderr)
  elif isinstance(error, errors.Interrupted):
    kept = error if resumes else 'nothing was written; start it again.'
    print(f'\nstopped: {kept}', file=sys.stderr)
  else:
    traceback.print_exception(error)
  return errors.get_exit_code(error)


def require_other(output: str, *inputs: str):
  """Refuses an --output that is read, since its content would be lost."""
  for path in inputs:
    exist = os.path.exists(output) and os.path.exists(path)
    if output == path or (exist and os.path.samefile(output, path)):
      raise errors.UserError(
        f'--output={output} is a file of --input, and would replace it; name '
        'another one.'
      )


def _parse(argv, fields: Mapping[str, str]):
  try:
    return flags.FLAGS(_arrange(argv))
  except SystemExit:  # of --help and the like, which absl ends with 1
    config = flags.FLAGS['config'].value if fields else None
    if config:
      print(_describe_fields(config, fields))
    sys.exit(0)
  except (flags.Error, errors.UserError) as error:
    full = _find_full(getattr(error, 'flagname', ''), fields)
    more = full and f'; did you mean {full}?'
    raise errors.UserError(f'{_gist(error)}{more} See --help.') from error
  except Exception as error:
    if getattr(error, 'name', '') == 'get_config':
      raise errors.UserError(
        'the file of --config has no function get_config; see configs/.'
      ) from error
    # What ml_collections raises for an unknown field.
    unknown = isinstance(error, AttributeError | LookupError)
    if unknown and not _is_from_config_file(error):
      raise errors.UserError(_describe_unknown(error, fields)) from error
    traceback.print_exc()  # of the config file
    sys.exit(errors.MISTAKE)


def _arrange(argv: Sequence[str]) -> list[str]:
  """Expands ~ in flags, as shells do only elsewhere, and puts --config first.

  ml_collections wants it before the flags for its fields, reports a missing file
  late and by a traceback, and joins the values of a tuple that is given twice:
  of equal flags of a config, the last is left.
  """
  end = argv.index('--') if '--' in argv else len(argv)
  command, *given = argv[:end]
  home = os.path.expanduser('~')
  given = [
    re.sub('(?<=[=,])~(?=/|$)', lambda _: home, x) if x.startswith('-') else x
    for x in given
  ]
  for name in ('--config', '-config'):  # and its value as the next argument
    if name in given[:-1]:
      i = given.index(name)
      given[i : i + 2] = [f'--config={given[i + 1]}']
  names = [x.partition('=')[0].lstrip('-') for x in given]
  given = [
    x
    for i, x in enumerate(given)
    if not re.match('--?config[.].*=', x) or names[i] not in names[i + 1 :]
  ]
  given.sort(key=lambda x: not x.startswith('--config='))
  if given and given[0].startswith('--config=') and 'config' in flags.FLAGS:
    file = find_config(given[0].removeprefix('--config='))
    given[0] = f'--config={file}'
  return [command, *given, *argv[end:]]


def _describe_unknown(error: BaseException, fields: Collection[str]) -> str:
  text = _gist(error)
  name = re.sub(r'\W*(\w*).*', r'\1', text)
  advice = '--help beside --config lists them.'
  if full := _find_full(name, fields):
    advice = f'did you mean {full}?'
  elif near := re.search(r'Did you mean "(\w+)"', text):
    advice = f'did you mean {near[1]!r}?'
  return f'a flag names no field of the config: {name!r}; {advice}'


def _find_full(name: str, fields: Collection[str]) -> str:
  """Returns the flags of the fields of which `name` is the last part."""
  full = [field for field in fields if field.rpartition('.')[2] == name]
  return ' or '.join(f'--config.{field}' for field in full)


def _is_from_config_file(error: BaseException) -> bool:
  return any(
    'ConfigFile' in frame.f_code.co_qualname  # the parser of ml_collections
    for frame, _ in traceback.walk_tb(error.__traceback__)
  )


def _gist(error: BaseException) -> str:
  """Returns an error's message as one line.

  ml_collections puts whole tracebacks into its error messages.
  """
  text = str(error).replace('\\n', '\n').replace("\\'", "'").strip()
  _, ours, user_error = text.rpartition('UserError: ')
  if ours:
    return user_error.strip()
  while len(text) > 1 and text[0] == text[-1] and text[0] in '\'"':
    text = text[1:-1]
  return ' '.join(text.split())


def find_config(given: str) -> str:
  """Returns FILE[:ARGUMENTS] with the path of an existing file.

  Where there is none, 'tiny' and 'configs/tiny.py' are the package's own.
  """
  path, colon, arguments = given.partition(':')
  name = path.removeprefix('configs/').removesuffix('.py')
  candidates = [path, *(str(folder / f'{name}.py') for folder in _FOLDERS)]
  path = next(filter(os.path.isfile, candidates), path)
  advice = f'give a file, or one of {", ".join(_list_configs())}.'
  with errors.explaining(f'cannot read --config={path}', advice):
    open(path, encoding='utf-8').close()
  return f'{path}{colon}{arguments}'


def load_config(given: str):
  """Returns the config of FILE[:ARGUMENTS], see `find_config`."""
  path, _, arguments = find_config(given).partition(':')
  return runpy.run_path(path)['get_config'](arguments)


def _list_configs() -> list[str]:
  files = (file for folder in _FOLDERS for file in folder.glob('*.py'))
  return sorted(
    {file.stem for file in files if 'def get_config' in file.read_text('utf-8')}
  )


def _describe_fields(config: Any, meanings: Mapping[str, str]) -> str:
  """Returns a text with every field of a config: flag, value and meaning."""
  lines, group = ['', 'fields, each a flag:'], ''
  indent = {'initial_indent': ' ' * 4, 'subsequent_indent': ' ' * 4}
  for name in sorted(meanings, key=lambda name: ('.' in name, name)):
    before, group = group, name.rpartition('.')[0]
    if group != before:
      lines += ['', f'{group}:']
    value = config[name]
    shown = repr(value) if isinstance(value, str) else str(value)
    shown = shown.replace(' ', '') if isinstance(value, tuple) else shown
    lines.append(f'  --config.{name}={shown}')
    lines += textwrap.wrap(meanings[name], _WIDTH, **indent)
  return '\n'.join(lines)
