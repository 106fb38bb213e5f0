"""Works through runs, together with other processes.

Each claims a run's directory and does the run in a process of its own. When all
that is left is claimed by others, it waits for them and takes over what they
leave unfinished, so every process ends with all results.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from ml_collections import config_dict

from bert_jax import errors, tasks
from bert_jax.config import to_json
from bert_jax.experiments import grid
from bert_jax.runtime import files, lock, signals, storage
from bert_jax.workdir import claim, log, paths, status

_CONFIG, _CLAIM, _OUTPUT = 'sweep.json', '.sweep.lock', 'output.txt'
_LOOK, _LOOK_REMOTE = 1.0, 15.0  # seconds between looks at others' files
_POLL, _TELL = 0.2, 60.0  # seconds between looks at the run, and between lines
_say = functools.partial(print, flush=True)
# Otherwise a run whose parent was killed would still be on the device when the
# same command goes on.
_CHILD = """
import runpy, sys
from bert_jax.runtime import workers
workers.end_with(int(sys.argv.pop(1)))
runpy.run_module('bert_jax.main', run_name='__main__', alter_sys=True)
"""


def claim_directory(
  directory: str, config: config_dict.ConfigDict, runs: Sequence[grid.Run]
):
  """Makes a directory that belongs to a config, or checks that it does.

  The grid may change, since its values are in the names of the runs' folders.
  Before a directory is made, the first run's model and files are read as by
  bert_jax.main, so that a wrong path is reported once.
  """
  path = os.path.join(directory, _CONFIG)
  if runs and not storage.exists(path):
    of = runs[0].config
    task, workdir = tasks.get(of), os.path.join(directory, runs[0].name)
    task.check_input(task.take_model(of, workdir))
  claim.make_folder(directory)
  if not storage.create(path, to_json(config).encode()):
    free = {name for run in runs for name in run.fields}
    saved = files.read_json(path)
    _refuse(directory, claim.find_differences(saved, config), free)
  for run in runs:
    workdir = os.path.join(directory, run.name)
    if claim.has_begun(workdir):
      claim.check_config(workdir)
      new = tasks.get(run.config).take_model(run.config, workdir)
      saved = files.read_json(paths.config(workdir))
      _refuse(workdir, claim.find_differences(saved, new))


def _refuse(path, differences, free=()):
  changed = differences[claim.ANOTHER].items()
  if changed := {name: x for name, x in changed if name not in free}:
    raise errors.UserError(
      f'{path} belongs to another config ({claim.describe_changes(changed)}); '
      'use another --workdir or the old values.'
    )


def make_command(run: grid.Run, overrides: Mapping[str, Any]) -> list[str]:
  """Returns the command of a run; `overrides` are not for one that needs others."""
  fields = run.fields if run.needs else {**overrides, **run.fields}
  texts = {
    name: ','.join(map(str, x)) if isinstance(x, tuple) else x
    for name, x in fields.items()
  }
  return [
    *(sys.executable, '-c', _CHILD, str(os.getpid())),
    f'--config={run.file}',
    *(f'--config.{name}={text}' for name, text in texts.items()),
    # Other hosts of a TPU are other processes of the sweep.
    '--num_processes=1',
  ]


def work(
  directory: str, runs: Sequence[grid.Run], overrides: Mapping[str, Any]
) -> Iterator[tuple[dict[str, dict], dict[str, int]]]:
  """Does the runs that no other process does, until none is left anywhere.

  Yields {name of a run: its results.json} of those that are done, and {name: exit
  code} of those that failed here, after each and at the end. Raises
  errors.Interrupted after a signal; the current run was saved.
  """
  results, failed, waiting = {}, {}, False  # for other processes
  with signals.recording() as stop:
    while left := _look(directory, runs, results, failed):
      for run in left:
        _check(stop)
        if not results.keys() >= {*run.needs}:
          continue
        workdir = os.path.join(directory, run.name)
        with lock.attempt(os.path.join(workdir, _CLAIM)) as held:
          # Another process may just have done it.
          if held and run in _look(directory, runs, results, failed):
            _say(f'{run.name} ({len(results) + 1} of {len(runs)})')
            command = [*make_command(run, overrides), f'--workdir={workdir}']
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


def describe_work(
  todo: Sequence[grid.Run], directory: str, gflops: float
) -> str:
  """Returns a line on the work done and left, at `gflops` GFLOP/s if not 0."""
  costs = {run: grid.count_flops(run.config) for run in todo}
  folders = {run: os.path.join(directory, run.name) for run in todo}
  done = [run for run in todo if read_results(folders[run])]
  made, seconds = sum(costs[run] for run in done), 0.0
  for run in done:
    phases, rows = run.config.phases, log.read(paths.metrics(folders[run]))
    seconds += log.count_seconds(rows, phases.steps, phases.batch_size)
  left = sum(costs.values()) - made
  speed = 1e9 * gflops or (made / seconds if seconds else 0)
  hours = f', {left / speed / 3600:.2g} hours of training' if speed else ''
  said = f'{len(done)} of {len(todo)} runs done, {made:.2e} FLOPs; left '
  return f'{said}{left:.2e} FLOPs{hours}'


def report_failures(failed: Mapping[str, int]) -> int:
  """Names failed runs, {name: exit code}; returns the code of the command."""
  for name in failed:
    print(f'failed: {name}; see output.txt there')
  codes = {*failed.values()}
  if errors.MISTAKE in codes or not codes:
    return errors.MISTAKE if codes else 0
  return errors.OTHER


def _look(directory, runs, results, failed) -> list[grid.Run]:
  """Adds the results of runs that are done by now; returns runs still to do."""
  for name in (run.name for run in runs if run.name not in results):
    if (of := read_results(os.path.join(directory, name))) is not None:
      results[name] = of
      failed.pop(name, None)  # another process has succeeded
  ended = results.keys() | failed
  return [x for x in runs if x.name not in ended and not {*x.needs} & {*failed}]


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
    _say('\n    '.join([f'  FAILED ({_describe(code)}):', *lines]))
    return code or errors.OTHER
  [[metric, value], *_] = results['metrics'].items()
  _say(f'  {metric} {value:.4f}')
  return 0


def run_process(
  command: list[str], workdir: str, stop: signals.Stop
) -> tuple[int, list[str]]:
  """Runs a command, which gets our signals; adds what it prints to output.txt.

  Returns its exit code, or minus the signal that killed it, and its last lines.
  """
  with _open_output(workdir) as file:
    begin = file.seek(0, os.SEEK_END)
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
          told, at = time.monotonic(), status.read(workdir)
          _say(f'  step {at.get("step")} of {at.get("steps")}')
        time.sleep(_POLL)
    finally:
      process.kill()
      process.wait()
    file.seek(begin)
    lines = file.read().decode(errors='replace').split('\n')
  lines = [x.rstrip() for x in lines if x.strip()]
  return process.returncode, lines[-10:]


@contextlib.contextmanager
def _open_output(workdir) -> Iterator[BinaryIO]:
  """Opens a run's output; that of a bucket is uploaded at the end."""
  path = os.path.join(workdir, _OUTPUT)
  with tempfile.TemporaryDirectory(prefix='bert_jax.') as folder:
    remote = storage.is_remote(path)
    here = os.path.join(folder, _OUTPUT) if remote else path
    storage.make_folder(workdir)
    if remote and storage.exists(path):
      storage.download(path, here)
    with errors.explaining(f'cannot write {path}'):
      file = open(here, 'a+b', opener=storage.open_own)
    with file:
      yield file
    if remote:
      storage.upload(here, path)


def _describe(code) -> str:
  if code == -signal.SIGKILL:
    return 'SIGKILL, maybe for lack of memory'
  return signal.Signals(-code).name if code < 0 else f'exit code {code}'


def _check(stop):
  if stop.signum is not None:
    raise errors.Interrupted(stop.signum)
