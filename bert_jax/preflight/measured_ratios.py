"""Measured time of steps divided by the estimate, stored for each chip."""

import datetime
import os
import statistics

from bert_jax import errors
from bert_jax.hardware import chips
from bert_jax.runtime import files
from bert_jax.train import task

_LEAST_ROWS = 3
_MOST_WAITING = 0.05  # share of the time spent waiting for input
# Fields of a row of kind 'run': the devices from then on, and the compiler.
_MACHINE = ('device_kind', 'devices', 'jax', 'libtpu')


def default_path() -> str:
  """Returns the path of the file with the ratios."""
  config = os.environ.get('XDG_CONFIG_HOME') or os.path.expanduser('~/.config')
  return os.path.join(config, 'bert_jax', 'calibration.json')


def read(chip: str) -> dict | None:
  """Returns a chip's calibration, by `chips.Chip.name`; None without one."""
  entry = _read_all().get(chip)
  match entry:
    case None | {'date': _, 'topology': _, 'ratios': [_, *_]}:
      ratios = entry['ratios'] if entry else []
      if all(isinstance(x, int | float) and x > 0 for x in ratios):
        return entry
  raise errors.UserError(
    f'{default_path()} has no ratios, date and topology for {chip}; delete the '
    'file and calibrate again.'
  )


def _read_all() -> dict:
  path = default_path()
  if not os.path.exists(path):
    return {}
  return files.read_json(path, 'delete the file and calibrate again')


def measure_step(rows: list[dict], phase: task.Phase) -> float | None:
  """Returns the median seconds of a step; None if there are too few rows."""
  # The first row of a phase or after a restart includes the slow first step.
  found, slower = [], True
  for row in rows:
    slower |= row['kind'] == 'run'
    inside = phase.first < row['step'] <= phase.first + phase.steps
    if row['kind'] == 'train' and inside:
      if not slower:
        found.append(row)
      slower = False
  if len(found) < _LEAST_ROWS:
    return None
  waited = statistics.median(row['data_wait'] for row in found)
  if waited > _MOST_WAITING:
    raise errors.UserError(
      f'the run waited for its input {waited:.0%} of phase {phase.number}, '
      f'more than {_MOST_WAITING:.0%}: it does not show how fast the chip is. '
      'Prepare the data ahead (data.dir) and train again.'
    )
  speed = statistics.median(row['sequences_per_second'] for row in found)
  return phase.batch_size / speed


def _of_last_machine(rows: list[dict]) -> list[dict]:
  """Returns the rows since devices, versions or the config last changed."""
  first, machine = 0, None
  for i, row in enumerate(rows):
    if row['kind'] == 'run':
      own = tuple(row.get(name) for name in _MACHINE)
      if own != machine or row.get('changed'):
        first, machine = i, own
  return rows[first:]


def compare(
  estimated: dict,
  rows: list[dict],
  phases: list[task.Phase],
  flops: list[float],
) -> dict:
  """Returns a chip's calibration: ratios of a run, and how they were measured.

  Args:
    estimated: the report that `preflight --json` wrote.
    flops: model FLOPs per step of each phase.
  """
  rows = _of_last_machine(rows)
  run = next((r for r in reversed(rows) if r['kind'] == 'run'), {})
  chip = _check_devices(run, estimated)
  known = {facts['number']: facts for facts in estimated['phases']}
  measured = []
  for phase, work in zip(phases, flops, strict=True):
    found = measure_step(rows, phase)
    if found is None or phase.number not in known:
      continue
    facts = known[phase.number]
    _check_phase(facts, phase, work)
    _check_attention(facts, rows)
    if 'step_seconds_model' in facts:
      seconds = {'seconds': found, 'model_seconds': facts['step_seconds_model']}
      measured.append({'number': phase.number, **seconds})
  if not measured:
    raise errors.UserError(
      f'no phase has an estimate and {_LEAST_ROWS + 1} rows of training; train '
      'longer or with a smaller log.every, and let preflight estimate the same '
      'phase.'
    )
  return {
    'chip': chip,
    'ratios': [x['seconds'] / x['model_seconds'] for x in measured],
    'date': str(datetime.date.today()),
    'topology': estimated['topology'],
    'slices': estimated['slices'],
    'phases': measured,
    'run': {name: run.get(name) for name in ('jax', 'libtpu')},
    'estimate': {'jax': estimated['jax'], 'libtpu': estimated.get('libtpu')},
  }


def _check_devices(run, estimated) -> str:
  """Returns the name of the chip; raises if run and estimate differ in it."""
  kind, count = run.get('device_kind'), run.get('devices')
  if kind is None or count is None:
    raise errors.UserError(
      'metrics.jsonl does not say which devices trained; resume the run for a '
      'few rows.'
    )
  chip = chips.find(kind)
  name = estimated['topology'].partition(':')[0]
  if chip is None or chip.name != name or count != estimated['devices']:
    raise errors.UserError(
      f'the run had {count} devices of {kind}, the estimate is for '
      f'{estimated["topology"]} with {estimated["devices"]} devices; run '
      'preflight with the --topology of the run.'
    )
  return chip.name


def _check_phase(facts, phase, flops):
  """Raises errors.UserError unless the estimate is for this phase."""
  for name, got, allowed in (
    ('batch_size', phase.batch_size, facts['batch_size']),
    ('seq_length', phase.seq_length, facts['seq_length']),
    ('accumulate', phase.accumulate, facts['accumulate']),
    ('model FLOPs', flops, facts['model_flops_per_step']),
  ):
    if got != allowed:
      raise errors.UserError(
        f'phase {phase.number} of the run has {name} {got:,}, the estimate '
        f'{allowed:,}; run preflight with the config of the run.'
      )


def _check_attention(facts, rows):
  """Raises errors.UserError if a phase trained with another attention.

  With compute.attention=auto, kernels that the compiler rejects are replaced.
  """
  if 'compiled_layers' not in facts:  # a GPU's, whatever the attention
    return
  allowed = f'attention {facts["compute"]["attention"]}'
  for row in rows:
    got = row.get(str(facts['number']), '')
    if row['kind'] == 'compute' and got and not got.startswith(f'{allowed},'):
      raise errors.UserError(
        f'phase {facts["number"]} of the run has {got.partition(",")[0]}, the '
        f'estimate {allowed}; run preflight with the jax and libtpu of the run.'
      )


def store(entry: dict):
  """Stores the calibration of a chip, replacing an earlier one."""
  found, path = _read_all(), default_path()
  found[entry['chip']] = {k: v for k, v in entry.items() if k != 'chip'}
  advice = 'free disk space or let the folder be written, then calibrate again.'
  with errors.explaining(f'cannot write {path}', advice):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write_json(path, found)
