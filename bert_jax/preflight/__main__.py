"""Says whether a run fits accelerators that you do not have yet.

  python -m bert_jax.preflight --config=configs/large.py --topology=v5e:4x4
  python -m bert_jax.preflight --config=configs/large.py --topology=h200:1

Compiles every program of the run with the compiler for TPUs or GPUs, on any
machine, and prints whether each compiles, the memory that they need, which batch
would fit, and about how long the run takes and what it costs. Times and prices
are estimates, never measurements.

The exit code is 2 if the run does not fit or cannot start.
"""

import functools
import textwrap

from absl import flags
from ml_collections import config_flags

from bert_jax import errors
from bert_jax.config import get_meanings
from bert_jax.runtime import cli

_GIB = 2**30
_INDENT = ' ' * 14
_MODEL = (
  'Time: a roofline, not a measurement, from data sheets: products at a share of',
  'the peak, the update at the bandwidth of the memory, and the collectives at',
  'that of the links, beside the computation at best, after it at worst.',
)
_GPU_MEMORY = (
  'Memory: as compiled without a GPU. With one, XLA times several ways to compute',
  'each product, and may choose one that needs a little more or less. By default',
  'jax takes 75 % of a GPU; XLA_CLIENT_MEM_FRACTION=0.92 is more.',
)
_HOSTS = 'Between hosts, links are taken to be as fast as within one.'
_LEFT_OUT = 'Not included: input, evaluation, checkpoints, compiling, restarts.'


def choose_phases(phases: list, number: int | None, hlo: str | None) -> list:
  """Returns all phases, or the one of a number."""
  if number is None and hlo and len(phases) > 1:
    raise errors.UserError(
      '--hlo writes one program; say which by --phase=0 or another.'
    )
  if number is not None and not 0 <= number < len(phases):
    raise errors.UserError(
      f'--phase={number} is not one of 0 to {len(phases) - 1}; the config has '
      f'{len(phases)} phase(s).'
    )
  return phases if number is None else [phases[number]]


def main():
  """Runs the command; returns 2 if the run cannot work."""
  import jax

  from bert_jax import config_check
  from bert_jax.hardware import accelerators
  from bert_jax.preflight import examine
  from bert_jax.runtime import files
  from bert_jax.trainer import task

  # Only the compiler is used; accelerators of this machine stay free.
  jax.config.update('jax_platforms', 'cpu')
  values = flags.FLAGS
  config = values.config
  own = config.copy_and_resolve_references()
  own.init_from, own.resize_positions = '', False  # that model is not read
  own.data.update(add_words=0, general='')
  own.optimizer.learning_rate = abs(own.optimizer.learning_rate)
  config_check.check(own)
  topology = accelerators.parse(values.topology, values.slices)
  whole = task.list_phases(config)
  phases = choose_phases(whole, values.phase, values.hlo)

  say = functools.partial(print, flush=True)
  programs, examined, texts = examine.examine(
    config, topology, phases, values.quick, say
  )
  found = examine.make_report(
    topology, values.price, programs, examined, phases == whole
  )
  say('\n'.join(render(found, topology)))
  if values.json:
    files.write_json(values.json, found)
  if values.hlo:
    text = texts[phases[0].number]
    if text is None:
      raise errors.UserError(
        f'--hlo={values.hlo} was not written: the compiler refuses the step.'
      )
    files.write_text(values.hlo, text)
  fit = all(facts['fits'] for facts in examined)
  return 0 if fit and all(program['ok'] for program in programs) else 2


def render(report: dict, topology) -> list[str]:
  """Returns a report of `examine.make_report` as lines of text."""
  slices = f'{report["slices"]} slices of ' if report['slices'] > 1 else ''
  title = (
    f'{slices}{report["topology"]}: {report["chips"]:,} chips, '
    f'{report["devices"]:,} devices, {report["hosts"]:,} host(s)'
  )
  found = ['', title, '', *_programs(report['programs'])]
  for facts in report['phases']:
    found += ['', *_phase(facts)]
  return [*found, '', *_run(report), '', *_model(report, topology)]


def _programs(programs):
  bad = [program for program in programs if not program['ok']]
  if not bad:
    return [f'programs: all {len(programs)} of the run compile']
  return [
    f'programs: {len(bad)} of {len(programs)} CANNOT BE COMPILED',
    *(
      f'  {x["name"]}'
      + ('' if x['phase'] is None else f' of phase {x["phase"]}')
      + f': {x["reason"]}'
      for x in bad
    ),
  ]


def _phase(facts):
  parts, predicted = facts['accumulate'], facts['predictions']
  steps = facts['steps']
  count = 'batches' if steps is None else f'{steps:,} steps'
  found = [
    f'phase {facts["number"]}: {count} of '
    f'{facts["batch_size"]:,} sequences of {facts["seq_length"]} tokens'
    + (f', up to {predicted} predicted' if predicted else '')
    + (f' in {parts} micro-batches' if parts > 1 else '')
  ]
  if 'compute' in facts:
    found.append(f'  compute     attention {facts["compute"]["attention"]}')
  if facts['fits'] is None:
    found.append('  memory      not known: the compiler refuses the step')
  else:
    found += _memory(facts)
  flops = facts['model_flops_per_step']
  found.append(f'  work        {flops / 1e12:,.2f} model TFLOPs per step')
  if 'step_seconds_estimate' in facts:
    found += _time(facts)
  else:
    found.append('  time        not known: the step did not compile')
  return found


def _memory(facts):
  usable, needed = facts['usable_bytes'], facts['needed_bytes']
  how, (*less, most) = 'compiled', facts['compiled_layers']
  if less:
    how = f'estimated for {facts["layers"]} layers from {less[0]} and {most}'
  spare, fits = f'{abs(usable - needed) / _GIB:.2f} GiB', facts['fits']
  verdict = f'FITS, {spare} to spare'
  if not fits:
    verdict = f'DOES NOT FIT, {spare} too much'
  kinds = [f'{name} {_size(n)}' for name, n in facts['memory'].items() if n]
  largest = facts['largest_batch_estimate']
  batch = 'far larger ones fit; this one is too small to say which'
  if largest is not None:
    batch = f'at most about {largest:,} sequences fit (estimated)'
  found = [
    f'  memory      {verdict}: {needed / _GIB:.2f} of {usable / _GIB:.2f} GiB '
    f'per device ({how})',
    f'{_INDENT}{", ".join(kinds)}',
    f'  batch       {batch}',
  ]
  if not fits:
    advice = 'no phases.accumulate makes it fit: use more or larger chips, or mesh.model'
    if parts := facts['accumulate_that_fits_estimate']:
      advice = f'phases.accumulate={parts} should make it fit (estimated)'
    found.append(f'{_INDENT}{advice}')
  return found


def _time(facts):
  low, high = facts['step_seconds_estimate']
  share = facts['utilisation_estimate']
  parts = ', '.join(
    f'{name} {_milliseconds(s)}'
    for name, s in facts['step_seconds_parts'].items()
    if s
  )
  n = facts['batch_size']
  return [
    f'  time        {_milliseconds(low)} to {_milliseconds(high)} per step '
    '(estimated):',
    f'              {parts}',
    f'              {n / high:,.0f} to {n / low:,.0f} sequences/s, '
    f'{share[0]:.0%} to {share[1]:.0%} of the peak',
  ]


def _run(report):
  run = report['run_estimate']
  what = 'whole run' if report['whole_run'] else 'phase'
  if any(facts['steps'] is None for facts in report['phases']):
    return [
      f'{what}: not estimated, since its steps follow from the data; give '
      '--config.phases.steps=N, 2 or more'
    ]
  if run is None:
    return [f'{what}: not estimated']
  price, source = report['usd_per_chip_hour'], report['price_source']
  paid = 'not known; give --price=USD per chip and hour'
  if price is not None:
    dollars = _range(run['dollars'])
    paid = f'${dollars} at ${price:.2f} per chip and hour ({source})'
  return [
    f'{what}: {_range(run["hours"])} hours, {_range(run["chip_hours"])} '
    'chip-hours, estimated',
    f'price: {paid}',
  ]


def _model(report, topology):
  why = {f.get('step_seconds_range') for f in report['phases']} - {None}
  found = ['Estimates, not measurements.']
  for line in sorted(why):
    found += textwrap.wrap(f'Range: {line}.', 78)
  found += _MODEL
  chip = topology.chip
  if topology.is_tpu:
    links = sum(topology.axis_links)
    found.append(
      f'Links: {links} of {chip.link_speed / 1e9:,.0f} GB/s each way for a chip'
      + f', {chip.network_bandwidth / 1e9:,.1f} GB/s to other slices'
      * (report['slices'] > 1)
      + '.'
    )
  else:
    found += [*_GPU_MEMORY, *[_HOSTS] * (report['slices'] > 1)]
  return [*found, _LEFT_OUT]


def _size(n):
  return f'{n / _GIB:.2f} GiB' if n >= _GIB / 10 else f'{n / 2**20:.1f} MiB'


def _milliseconds(seconds):
  return f'{seconds * 1e3:,.3g} ms' if seconds < 1 else f'{seconds:,.3g} s'


def _range(pair):
  low, high = (round(x, 4) for x in pair)
  digits = '.0f' if high >= 100 else '.3g'
  return f'{low:,{digits}} to {high:,{digits}}'


def _define_flags():
  config_flags.DEFINE_config_file(
    'config', None, 'The experiment, e.g. configs/large.py.'
  )
  flags.DEFINE_string(
    'topology',
    None,
    'What to run on: v5e:4x4 (chips along each axis), v5litepod-16, or GPUs '
    'such as h100:8.',
  )
  flags.DEFINE_integer('slices', 1, 'Number of slices.')
  flags.DEFINE_integer('phase', None, 'Phase to examine; by default all.')
  flags.DEFINE_bool(
    'quick', False, 'Compile a few layers and extrapolate to all.'
  )
  flags.DEFINE_float('price', None, 'US dollars per chip and hour.', 0.0)
  flags.DEFINE_string('json', None, 'File for all figures.')
  flags.DEFINE_string(
    'hlo', None, 'File for the compiled training step of one phase, as text.'
  )
  flags.mark_flags_as_required(['config', 'topology'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, fields=get_meanings())
