"""Runs of `small_config.py`, and what is expected of them.

They run in this process, or as processes of a fork server.

A fork server imports jax and bert_jax once, so that a process is a run within
two seconds. What it executes is `python -m bert_jax.main` itself.
"""

import contextlib
import dataclasses
import hashlib
import io
import multiprocessing
import os
import pathlib
import random
import runpy
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable

# For the fork server: what a run imports.
import jax
import orbax.checkpoint  # noqa: F401
import small_config

from bert_jax import config_check, errors, main, tasks  # noqa: F401
from bert_jax.parallel import agreement  # noqa: F401
from bert_jax.runtime import compile_cache, signals, storage
from bert_jax.train import fit  # noqa: F401
from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
CONFIG = os.path.join(ROOT, 'benchmarks', 'proofs', 'small_config.py')
LIMIT = 300  # seconds; no run has to be waited for as long
_WORDS = (
  'the a bird fish stone river cold warm runs sees under over quickly old new '
  'house tree cloud rain wind sun night day morning evening child woman man'
).split()


class Broken(Exception):
  """A promise that was not kept."""


class Skipped(Exception):
  """Something is missing here that the measurement needs."""


def expect(condition, text: str):
  """Raises `Broken` unless a condition holds."""
  if not condition:
    raise Broken(text)


def expect_error(call: Callable, *words: str) -> str:
  """Calls something that must end with one clear line; returns the line.

  Args:
    call: what must raise errors.UserError or OSError.
    words: must all be in its message.
  """
  try:
    found = call()
  except (errors.UserError, OSError) as error:
    text = str(error)
    expect('\n' not in text, f'more than one line: {text}')
    missing = [word for word in words if word not in text]
    expect(not missing, f'it does not say {missing}: {text}')
    return text
  raise Broken(f'no error, but {str(found)[-300:]!r}')


def expect_line(code: int, text: str, *words: str, expected: int) -> str:
  """Checks how a process ended; returns its last line.

  Args:
    code: its exit code.
    text: what it printed.
    words: must all be in its line 'error: ...'.
    expected: the exit code that it must have.
  """
  expect(code == expected, f'exit code {code}:\n{text[-3000:]}')
  lines = [x for x in text.splitlines() if x.startswith('error: ')]
  expect(len(lines) == 1, f'{len(lines)} lines of errors:\n{text[-3000:]}')
  expect('Traceback' not in text, text[-3000:])
  missing = [word for word in words if word not in lines[0]]
  expect(not missing, f'it does not say {missing}: {lines[0]}')
  return lines[0]


def quote(text: str, start: str = '') -> str:
  """Returns a text from `start` on in quotes, of at most 70 characters."""
  begin = text.index(start)
  words = textwrap.shorten(text[begin:], 70, placeholder=' ...')
  return f'"{"... " if begin else ""}{words}"'


def expect_same(found: dict, expected: dict):
  """Checks that a run ended as another: bits, export and every loss."""
  for name, value in expected.items():
    expect(found[name] == value, f'{name}: {found[name]}, expected {value}')


def set_environment(cache: str):
  """Sets the variables of this process and of those that it starts."""
  os.environ.update(
    JAX_PLATFORMS='cpu',
    JAX_DISABLE_MOST_OPTIMIZATIONS='true',
    JAX_COMPILATION_CACHE_DIR=cache,
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
    PYTHONPATH=os.pathsep.join([ROOT, os.path.dirname(CONFIG)]),
    PYTHONUNBUFFERED='1',
    # Killed processes leave semaphores, of which its tracker warns at the end.
    PYTHONWARNINGS='ignore::UserWarning:multiprocessing.resource_tracker',
  )


@dataclasses.dataclass(frozen=True)
class Base:
  """An uninterrupted run, with which others are compared.

  Attributes:
    text: path of its text.
    workdir: its working directory, with its prepared data.
    result: what `describe` returns for it.
  """

  text: str
  workdir: str
  result: dict

  @property
  def data(self) -> str:
    return os.path.join(self.workdir, 'data')


def make_base(folder: str) -> Base:
  """Writes a text, prepares it and trains on it."""
  text, workdir = (os.path.join(folder, x) for x in ('text.txt', 'whole'))
  write_corpus(text)
  train(workdir, f'input={text}')
  return Base(text, workdir, describe(workdir))


def write_corpus(path: str):
  """Writes documents of made-up sentences, always the same."""
  rng = random.Random(0)
  blocks = []
  for _ in range(120):
    lines = [
      ' '.join(rng.choices(_WORDS, k=rng.randint(4, 12))) + '.'
      for _ in range(rng.randint(4, 12))
    ]
    blocks.append('\n'.join(lines))
  with open(path, 'w', encoding='utf-8') as file:
    file.write('\n\n'.join(blocks))


def train(workdir: str, arguments: str) -> str:
  """Runs in this process; returns what was printed.

  Raises:
    what `main.run` raises; its output is then added as a note.
  """
  said = io.StringIO()
  c = small_config.get_config(arguments)
  compile_cache.use()
  try:
    with (
      contextlib.redirect_stdout(said),
      contextlib.redirect_stderr(said),
      signals.raising(),
    ):
      main.run(c, storage.resolve(workdir))
  except BaseException as error:
    error.add_note(said.getvalue())
    raise
  return said.getvalue()


def describe(workdir: str) -> dict:
  """Returns the last fingerprint, the losses and the export's hashes."""
  rows = log.read(os.path.join(workdir, 'metrics.jsonl'))
  marks = [r['fingerprint'] for r in rows if r['kind'] == 'checkpoint']
  export = os.path.join(workdir, 'export')
  return {
    'fingerprint': marks[-1],
    'losses': [(r['kind'], r['step'], r['loss']) for r in rows if 'loss' in r],
    'export': {
      name: hashlib.sha256(storage.read(os.path.join(export, name))).hexdigest()
      for name in storage.list_names(export)
    },
  }


class Started:
  """A run in a process of its own.

  Attributes:
    process: the process.
    output: path of the file with what it prints.
  """

  def __init__(self, process, output: str):
    self.process, self.output = process, output

  def say(self) -> str:
    """Returns what it has printed so far."""
    with open(self.output, errors='replace') as file:
      return file.read()

  def wait(self) -> int:
    """Returns the exit code, or minus the number of the signal."""
    self.process.join(LIMIT)
    if self.process.exitcode is None:
      self.process.kill()
      self.process.join()
      raise TimeoutError(f'no end after {LIMIT} s:\n{self.say()[-3000:]}')
    return self.process.exitcode


def start(
  workdir: str,
  arguments: str,
  *flags: str,
  prepare: Callable[[], None] | None = None,
  env: dict[str, str] | None = None,
) -> Started:
  """Starts `python -m bert_jax.main` in a process of the fork server.

  Args:
    workdir: that of the run.
    arguments: of `small_config.get_config`.
    flags: more flags.
    prepare: a picklable function, called in the process first.
    env: is added to its environment.
  """
  output = f'{workdir}.{random.randrange(1 << 60):x}.out'
  if storage.is_remote(workdir):
    output = os.path.join(os.getcwd(), os.path.basename(output))
  given = [f'--config={CONFIG}:{arguments}', f'--workdir={workdir}', *flags]
  process = make_context().Process(
    target=_run, args=(given, output, prepare, env or {})
  )
  process.start()
  found = Started(process, output)
  open(output, 'a').close()
  return found


def make_context():
  """Returns a multiprocessing context whose server has imported all this."""
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(['small_run'])
  return context


def end_with_server():
  """Ends this process when the fork server has ended, with who started it."""
  server = os.getppid()

  def watch():
    while os.getppid() == server:
      time.sleep(1)
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()


def redirect(output: str):
  """Sends what this process prints, native code included, to a file."""
  sys.stdout.flush()
  file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
  for descriptor in (1, 2):
    os.dup2(file, descriptor)
  os.close(file)
  sys.stdout = open(1, 'w', buffering=1, closefd=False)
  sys.stderr = open(2, 'w', buffering=1, closefd=False)


@dataclasses.dataclass(frozen=True)
class UseCache:
  """Gives a process another folder for compiled programs.

  The variable of the environment was read when jax was imported.
  """

  folder: str

  def __call__(self):
    jax.config.update('jax_compilation_cache_dir', self.folder)


def _run(given, output, prepare, env):
  redirect(output)
  end_with_server()
  os.environ.update(env)
  os.setpgrp()  # a signal to the terminal is not for it
  # Under nohup it is ignored, and so it would be by the run.
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  sys.argv = ['main', *given]
  if prepare is not None:
    prepare()
  del sys.modules['bert_jax.main']  # it is executed anew, as a command
  code = 1
  try:
    runpy.run_module('bert_jax.main', run_name='__main__', alter_sys=True)
    code = 0
  except SystemExit as end:
    code = end.code or 0
  except BaseException:
    traceback.print_exc()
  for stream in (sys.stdout, sys.stderr):
    stream.flush()
  os._exit(code)  # without what multiprocessing waits for at the end
