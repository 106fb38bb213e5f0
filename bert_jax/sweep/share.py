"""Works through the runs of a sweep, together with other processes.

Each process does one run at a time, in a process of its own. It claims a run's
directory before it starts the run. When all that is left is claimed by others,
it waits for them and takes over what they leave unfinished, so every process
ends with the whole table.
"""

import collections
import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ml_collections import config_dict

from bert_jax import errors, tasks
from bert_jax.config import to_json
from bert_jax.runtime import files, lock, signals, storage
from bert_jax.sweep import grid
from bert_jax.workdir import claim, paths, status

_SWEEP, _CLAIM, _OUTPUT = 'sweep.json', '.sweep.lock', 'output.txt'
_LOOK, _LOOK_REMOTE = 1.0, 15.0  # seconds between looks at others' files
_POLL, _TELL = 0.2, 60.0  # seconds between looks at the run, and between lines
_say = functools.partial(print, flush=True)


def check_inputs(directory: str, config: config_dict.ConfigDict, run: grid.Run):
  """Raises errors.UserError if the first run of a new sweep could not begin.

  Its model and files are read as by bert_jax.main, so that a wrong path is
  reported once, before the directory belongs to its config.
  """
  if storage.exists(os.path.join(directory, _SWEEP)):
    return
  new, workdir = run.apply(config), os.path.join(directory, run.name)
  task = tasks.get(new)
  task.check_input(task.take_model(new, workdir))


def check_config(
  directory: str, config: config_dict.ConfigDict, runs: list[grid.Run]
):
  """Raises errors.UserError if a directory belongs to another sweep.

  A missing directory is made. The grid may change, since its values are in the
  names of the runs' folders.
  """
  path = os.path.join(directory, _SWEEP)
  claim.make_folder(directory)
  with errors.explaining(f'cannot write {path}'):
    is_new = storage.create(path, to_json(config).encode())
  if not is_new:
    free = {name for run in runs for name in run.fields}
    _compare(directory, files.read_json(path), config, free)
  for run in runs:
    workdir = os.path.join(directory, run.name)
    if claim.has_begun(workdir):
      claim.check_config(workdir)
      new = run.apply(config)
      new = tasks.get(new).take_model(new, workdir)
      _compare(workdir, files.read_json(paths.config(workdir)), new)


def _compare(path, saved, config, free=()):
  found = claim.find_differences(saved, config)[claim.ANOTHER]
  fixed = {name: x for name, x in found.items() if name not in free}
  if fixed:
    raise errors.UserError(
      f'{path} belongs to another config ({claim.describe_changes(fixed)}); use '
      'another --workdir or the old values.'
    )


def make_command(config: str, fields: Mapping[str, Any]) -> list[str]:
  """Returns the command that trains a config with fields, without --workdir."""
  texts = {
    name: ','.join(map(str, x)) if isinstance(x, tuple) else x
    for name, x in fields.items()
  }
  return [
    *(sys.executable, '-m', 'bert_jax.sweep.child', str(os.getpid())),
    f'--config={config}',
    *(f'--config.{name}={text}' for name, text in texts.items()),
    # Other hosts of a TPU are other processes of the sweep.
    '--num_processes=1',
  ]


def work(
  directory: str,
  runs: list[grid.Run],
  make_command: Callable[[grid.Run], list[str]],
) -> Iterator[tuple[dict[str, dict], dict[str, int]]]:
  """Does the runs that no other process does, until none is left anywhere.

  Args:
    make_command: run -> the program that does it, and its arguments, except
      for --workdir.

  Yields:
    {name of a run: its results.json} of those that are done, and {name: exit
    code} of those that failed here, after each run that was done here, and when
    all runs are done, here or elsewhere, or have failed here.

  Raises:
    errors.Interrupted: after a signal; the current run was saved.
  """
  results: dict[str, dict] = {}
  failed: dict[str, int] = {}
  waiting = False  # for other processes
  with signals.recording() as stop:
    while left := _look(directory, runs, results, failed):
      for run in left:
        _check(stop)
        if not results.keys() >= {*run.needs}:
          continue
        workdir = os.path.join(directory, run.name)
        path, sign = os.path.join(workdir, _CLAIM), paths.status(workdir)
        with lock.attempt(path, sign) as held:
          # Another process may just have done it.
          if held and run in _look(directory, runs, results, failed):
            _say(f'{run.name} ({len(results) + 1} of {len(runs)})')
            command = [*make_command(run), f'--workdir={workdir}']
            if code := _run(command, workdir, stop):
              failed[run.name] = code
            _look(directory, runs, results, failed)
            yield results, failed
            waiting = False
            break
      else:
        if not waiting:
          names = errors.listing([run.name for run in left], most=2)
          _say(f'waiting for other processes: {names}')
        waiting = True
        time.sleep(_LOOK_REMOTE if storage.is_remote(directory) else _LOOK)
  yield results, failed


def report_failures(failed: Mapping[str, int]) -> int:
  """Names failed runs, {name: exit code}; returns the code of their sweep."""
  for name in failed:
    print(f'failed: {name}; see output.txt there')
  codes = {*failed.values()}
  if errors.MISTAKE in codes:
    return errors.MISTAKE
  if codes <= {errors.MAY_PASS}:
    return errors.MAY_PASS if codes else 0
  return errors.BUG


def _look(directory, runs, results, failed) -> list[grid.Run]:
  """Adds the results of runs that are done by now; returns runs still to do."""
  for run in runs:
    if run.name not in results:
      found = read_results(os.path.join(directory, run.name))
      if found is not None:
        results[run.name] = found
        failed.pop(run.name, None)  # another process has succeeded
  ended = results.keys() | failed
  return [
    x for x in runs if x.name not in ended and not failed.keys() & x.needs
  ]


def read_results(workdir: str) -> dict[str, Any] | None:
  """Returns a run's results.json if everything else is written, too."""
  path = paths.results(workdir)
  if status.read(workdir).get('state') != 'done' or not storage.exists(path):
    return None
  return files.read_json(path, 'delete it to have it written again')


def _run(command, workdir, stop) -> int:
  """Does a run; prints how it ended, and returns 0 or how it failed."""
  code, lines = run_process(command, workdir, stop)
  if stop.signum is not None and code:
    _say(f'{os.path.basename(workdir)}: {(lines or [_describe(code)])[-1]}')
  _check(stop)
  results = read_results(workdir)
  if code or results is None:
    _say(f'  FAILED ({_describe(code)}):')
    for line in lines:
      _say(f'    {line}')
    return code or errors.BUG
  [[metric, value], *_] = results['metrics'].items()
  _say(f'  {metric} {value:.4f}')
  return 0


def run_process(
  command: list[str], workdir: str, stop: signals.Stop
) -> tuple[int, list[str]]:
  """Runs a command; what it prints is added to WORKDIR/output.txt.

  A signal is passed on to it, so that it saves and stops.

  Returns:
    (exit code, or minus the signal that killed it; the last lines printed).
  """
  with _open_output(workdir) as path:
    begin = os.path.getsize(path) if os.path.exists(path) else 0
    with open(path, 'ab') as file:
      process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=subprocess.STDOUT,
        # Ctrl-C on a terminal goes to this process alone, which passes it on.
        start_new_session=True,
      )
    told, passed_on = time.monotonic(), False
    try:
      while process.poll() is None:
        if stop.signum is not None and not passed_on:
          # A closed stdout is this process's alone.
          gone = stop.signum == signal.SIGPIPE
          process.send_signal(signal.SIGTERM if gone else stop.signum)
          passed_on = True
        if time.monotonic() - told >= _TELL:
          told = time.monotonic()
          _say(f'  {describe_progress(status.read(workdir))}')
        time.sleep(_POLL)
    finally:
      process.kill()
      process.wait()
    with open(path, encoding='utf-8', errors='replace') as file:
      file.seek(begin)
      lines = (line.rstrip() for line in file)
      return process.returncode, [*collections.deque(filter(None, lines), 10)]


@contextlib.contextmanager
def _open_output(workdir) -> Iterator[str]:
  """Yields the local path of a run's output, which is in a bucket later."""
  path = os.path.join(workdir, _OUTPUT)
  if not storage.is_remote(path):
    storage.make_folder(workdir)
    yield path
    return
  with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
    local = os.path.join(folder, _OUTPUT)
    if storage.exists(path):
      storage.download(path, local)
    yield local
    storage.upload(local, path)


def describe_progress(found: dict[str, Any]) -> str:
  """Describes how far a run is, by its status.json, in a few words.

  >>> describe_progress({'step': 30, 'steps': 120, 'loss': 0.61234})
  '25% loss 0.612'
  >>> describe_progress({})
  'starting'
  """
  if not found.get('steps'):
    return 'starting'
  words = f'{found["step"] / found["steps"]:.0%}'
  loss = found.get('loss')
  return words if loss is None else f'{words} loss {loss:.3f}'


def _describe(code) -> str:
  """Describes how a process ended.

  >>> _describe(-9)
  'SIGKILL, maybe for lack of memory'
  """
  if code >= 0:
    return f'exit code {code}'
  name = signal.Signals(-code).name
  return f'{name}, maybe for lack of memory' if name == 'SIGKILL' else name


def _check(stop):
  if stop.signum is not None:
    raise errors.Interrupted(stop.signum)
