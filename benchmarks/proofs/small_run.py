"""Runs of small_config.py, what is done to them, and what is expected of them.

They run in this process, or as processes of a fork server, which imports jax and
bert_jax once, so that a process is a run within two seconds. What it executes is
`python -m bert_jax.main` itself.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import io
import json
import multiprocessing
import os
import pathlib
import random
import resource
import runpy
import signal
import sys
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
from bert_jax.runtime import bucket, machine, signals, storage
from bert_jax.trainer import fit  # noqa: F401
from bert_jax.workdir import log

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
CONFIG = os.path.join(ROOT, 'benchmarks', 'proofs', 'small_config.py')
LIMIT = 300  # seconds; no run has to be waited for as long
ENDS = errors.UserError, OSError  # in one line
# Where a run is, and the function of bert_jax that is called there.
MOMENTS = {
  'starting': ('config_check', 'check'),
  'data preparation': ('data.shards', 'make'),
  'restoring': ('workdir.checkpoint', 'Checkpoints.restore'),
  'compilation': ('trainer.programs', 'compile_all'),
  'a step': ('trainer.meter', 'Meter.add'),
  'the log': ('workdir.log', 'Log.write'),
  'evaluation': ('trainer.loop', 'evaluate'),
  'a save': ('workdir.checkpoint', 'Checkpoints.save'),
  'the export': ('interop.hugging_face', 'export'),
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS = 'os.mkdir', 'os.rename', 'os.remove', 'os.rmdir', 'shutil.rmtree'
_WORDS = (
  'the a bird fish stone river cold warm runs sees under over quickly old new '
  'house tree cloud rain wind sun night day morning evening child woman man'
).split()


class Broken(Exception):
  """A promise that was not kept."""


def expect(condition, text: str):
  if not condition:
    raise Broken(text)


def expect_error(call: Callable, *words: str):
  """Calls something that must end with one line, which has all the words."""
  try:
    found = call()
  except ENDS as error:
    text = str(error)
    expect('\n' not in text, f'more than one line: {text}')
    missing = [word for word in words if word not in text]
    expect(not missing, f'it does not say {missing}: {text}')
  else:
    raise Broken(f'no error, but {str(found)[-300:]!r}')


def expect_same(found: dict, expected: dict):
  """Checks that a run ended as another: bits, export and every loss."""
  for name, value in expected.items():
    expect(found[name] == value, f'{name}: {found[name]}, expected {value}')


def set_environment(cache: str):
  """Sets what jax and Python do in this process and in those that it starts."""
  chosen = {
    'jax_platforms': 'cpu',
    'jax_disable_most_optimizations': True,
    'jax_compilation_cache_dir': cache,
    'jax_persistent_cache_min_compile_time_secs': 0,
  }
  for name, value in chosen.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)
  os.environ.update(
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
  rng, blocks = random.Random(0), []
  for _ in range(120):
    lines = [
      ' '.join(rng.choices(_WORDS, k=rng.randint(4, 12))) + '.'
      for _ in range(rng.randint(4, 12))
    ]
    blocks.append('\n'.join(lines))
  pathlib.Path(text).write_text('\n\n'.join(blocks), 'utf-8')
  train(workdir, f'input={text}')
  return Base(text, workdir, describe(workdir))


def train(workdir: str, arguments: str) -> str:
  """Runs in this process; returns what was printed.

  Raises:
    what `main.run` raises; its output is then added as a note.
  """
  said = io.StringIO()
  c = small_config.get_config(arguments)
  machine.keep_programs()
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


@dataclasses.dataclass(frozen=True)
class Started:
  """A run in a process of its own; `output` is the file of what it prints."""

  process: multiprocessing.Process
  output: pathlib.Path

  def say(self) -> str:
    return self.output.read_text(errors='replace')

  def wait(self) -> int:
    """Returns the exit code, or minus the number of the signal."""
    self.process.join(LIMIT)
    if self.process.exitcode is None:
      self.process.kill()
      raise TimeoutError(f'no end after {LIMIT} s:\n{self.say()[-3000:]}')
    return self.process.exitcode


def start(
  workdir: str,
  arguments: str,
  act: Callable[[], None] | None = None,
  env: dict[str, str] | None = None,
) -> Started:
  """Starts `python -m bert_jax.main` in a process of the fork server.

  Args:
    workdir: that of the run.
    arguments: of `small_config.get_config`.
    act: a picklable function, called in the process first.
    env: is added to its environment.
  """
  name = f'{os.path.basename(workdir)}.{random.randrange(1 << 60):x}.out'
  output = pathlib.Path(name).absolute()
  output.touch()
  given = [f'--config={CONFIG}:{arguments}', f'--workdir={workdir}']
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(['small_run'])
  process = context.Process(target=_run, args=(given, output, act, env or {}))
  process.start()
  return Started(process, output)


def _run(given, output, act, env):
  file = os.open(output, os.O_WRONLY | os.O_APPEND)
  for descriptor in (1, 2):  # native code included
    os.dup2(file, descriptor)
  sys.stdout = open(1, 'w', buffering=1, closefd=False)
  sys.stderr = open(2, 'w', buffering=1, closefd=False)
  os.environ.update(env)
  os.setpgrp()  # a signal to the terminal is not for it
  # Under nohup it is ignored, and so it would be by the run.
  signal.signal(signal.SIGHUP, signal.SIG_DFL)
  sys.argv = ['main', *given]
  if act is not None:
    act()
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


def replace(moment: str, make: Callable):
  """Replaces the function of a moment by make(function)."""
  module, name = MOMENTS[moment]
  owner = importlib.import_module(f'bert_jax.{module}')
  *classes, last = name.split('.')
  for x in classes:
    owner = getattr(owner, x)
  setattr(owner, last, make(getattr(owner, last)))


# What follows is done to a process, as the `act` of `start`.


def send(moment, numbers, count=1, delay=0.0):
  """Makes a process send itself signals at a moment.

  Args:
    moment: one of `MOMENTS`.
    numbers: of the signals, which follow one another.
    count: at which call of the moment's function, from 1.
    delay: seconds from then to the first signal.
  """
  calls = []

  def send_all():
    time.sleep(delay)
    for number in numbers:
      os.kill(os.getpid(), number)
      time.sleep(0.01)

  def wrap(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
      calls.append(1)
      if len(calls) == count:
        threading.Thread(target=send_all, daemon=True).start()
        time.sleep(0.001)
      return function(*args, **kwargs)

    return wrapped

  replace(moment, wrap)


def kill_before_write(step, number, report):
  """Kills a process before a change to the checkpoints that Python itself makes.

  Args:
    step: changes count from the save of this step on.
    number: that of the change, from 1; 0 counts all.
    report: path of a file for their number.
  """
  seen, active = [], []

  def wrap(save):
    def wrapped(checkpoints, at, *args):
      active.extend([1] * (at == step))
      found = save(checkpoints, at, *args)
      if at == step:
        checkpoints._saver.wait_until_finished()
        active.clear()
        pathlib.Path(report).write_text(json.dumps(len(seen)))
      return found

    return wrapped

  def look(event, args):
    if not active or not args or '/checkpoints' not in str(args[0]):
      return
    opens = event == 'open' and bool((args[2] or 0) & _WRITING)
    if event in _EVENTS or opens:
      seen.append(event)
      if len(seen) == number:
        os.kill(os.getpid(), signal.SIGKILL)

  replace('a save', wrap)
  sys.addaudithook(look)


def kill_in_write(step, size):
  """Ends a process by SIGXFSZ when a file of the save of a step has a size."""

  def wrap(save):
    def wrapped(checkpoints, at, *args):
      if at == step:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        limits = size, resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      return save(checkpoints, at, *args)

    return wrapped

  replace('a save', wrap)


def use_cache(folder):
  """Gives a process another folder for compiled programs, when jax is imported."""
  jax.config.update('jax_compilation_cache_dir', folder)


def limit_patience(seconds):
  """Limits how long a process repeats requests to a bucket, and waits for one."""
  bucket.PATIENCE = seconds
  bucket._SILENCE = max(1, round(seconds))
