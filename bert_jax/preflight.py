"""Says whether a run fits accelerators that you do not have yet.

  python -m bert_jax.preflight --config=configs/large.py --topology=v5e:4x4

Compiles every program of the run with the TPU's own compiler, on any machine,
and tells whether each can start, the memory that they need, which batch would
fit, and about how long the run takes and what it costs. Times and prices are
estimates, never measurements.

The exit code is 2 if the run does not fit or cannot start.
"""

import dataclasses

from absl import flags
from ml_collections import config_flags

from bert_jax import command, errors

_QUICK_LAYERS = 2, 4
# Beside compute.*, fields that change the time of a step and not its shapes.
_TIMED = (
  *('rng', 'mesh.model', 'model.dtype', 'model.dropout'),
  *('model.attention_dropout', 'optimizer.clip_unit', 'optimizer.reduce_dtype'),
)


def examine(config, topology, phases, quick: bool, say=print):
  """Compiles the programs of a run for a TPU slice.

  Args:
    config: the experiment.
    topology: of `topology.parse`, of TPUs.
    phases: of `task.phases`, those to look at.
    quick: compile 2 and 4 layers and extrapolate.
    say: gets lines of progress.

  Returns:
    (programs, facts, texts): for JSON, a list of what became of each program,
    and a dict for each phase; and {phase: HLO text of its training step},
    with `quick` that of four layers, where there is one.

  Raises:
    errors.UserError: if the batch or the model cannot be split over the slice.
  """
  from bert_jax import aot, calibrate, compilation, sharding
  from bert_jax import programs as programs_lib
  from bert_jax.tasks import pretrain

  # A malformed file is an error now, not after an hour of compiling.
  calibration = calibrate.read(topology.chip.name)
  devices = aot.describe_devices(topology)
  mesh = sharding.make_mesh(config.mesh.model, devices=devices)
  for phase in phases:
    sharding.check_batch(mesh, phase.batch_size, phase.accumulate)
  layers = [config.model.num_layers]
  if quick and layers[0] > max(_QUICK_LAYERS):
    layers = [*_QUICK_LAYERS]
  runs = []
  for n in layers:
    say(f'compiling the programs of a run with {n} layers ...')
    fewer = _with_layers(config, n)
    start = programs_lib.of_start(fewer, pretrain.objective(fewer), mesh)
    runs.append(
      compilation.compile_run(
        fewer, pretrain.objective, mesh, start, phases, say
      )
    )
  usable = aot.usable_memory(devices[0])
  facts, texts = [], {}
  for phase in phases:
    steps = [_training_step(run[phase.number]) for run in runs]
    text, own = _examine_phase(
      *(config, topology, mesh, phase, usable, steps, calibration)
    )
    compute = runs[-1][phase.number].config.compute.to_dict()
    facts.append(own | {'compiled_layers': layers, 'compute': compute})
    texts[phase.number] = text
  return _verdicts(runs, layers), facts, texts


def _training_step(result):
  """Returns `aot.examine` of a phase's training step; None if refused."""
  from bert_jax import aot, programs

  (step,) = (o for o in result.outcomes if o.program.name == programs.TRAIN)
  return None if step.refused else aot.examine(step)


def _verdicts(runs, layers) -> list[dict]:
  """Returns what became of each program, of all depths that were compiled."""
  from bert_jax import compilation

  found = {}
  for run, n in zip(runs, layers, strict=True):
    for outcome in (o for result in run.values() for o in result.outcomes):
      key = outcome.program.name, outcome.program.phase
      verdict = found.setdefault(
        key, {'name': key[0], 'phase': key[1], 'ok': True, 'reason': None}
      )
      why = compilation.problem(outcome)
      if why and verdict['ok']:
        depth = f'with {n} layers ' if len(layers) > 1 else ''
        verdict.update(ok=False, reason=f'{depth}it {why}')
  return list(found.values())


def _examine_phase(config, topology, mesh, phase, usable, steps, calibration):
  """Returns (HLO text or None, facts) of a phase.

  Args:
    config: the experiment.
    topology: what it would run on.
    mesh: over it.
    phase: one of `task.phases`.
    usable: bytes of a device.
    steps: `aot.Compiled` of the training step: one of all layers, or two of
      few; None among them where the compiler refuses it.
    calibration: of `calibrate.read`.
  """
  from bert_jax import aot, estimate, kernel_schedules
  from bert_jax.tasks import pretrain

  flops = pretrain.objective(config).flops(phase)
  facts = _phase_facts(phase, flops) | {'usable_bytes': usable}
  if None in steps:
    return None, facts | {'fits': None}
  if len(steps) == 1:
    memory, fits, cost = steps[0].memory, steps[0].fits, _cost(steps[0])
  else:
    along = (*_QUICK_LAYERS, config.model.num_layers)
    memory, cost = _extrapolate(*steps, along)
    fits = memory.total <= usable
  batch = estimate.batch(
    memory.total,
    memory.parameters + memory.optimizer + memory.program,
    memory.parameters,  # the shards of the gradients are as large
    usable,
    sums=aot.gradient_bytes(config, mesh),
    batch_size=phase.batch_size,
    accumulate=phase.accumulate,
    shares=mesh.shape['data'],
  )
  facts |= {
    'fits': fits,
    'needed_bytes': memory.total,
    'memory': dataclasses.asdict(memory),
    'largest_batch_estimate': batch.largest,
    'accumulate_that_fits_estimate': batch.accumulate,
  }
  if cost is not None:
    step = estimate.tpu_step(
      cost,
      topology,
      generator=kernel_schedules.generator(config),
      flops=flops,
      calibration=calibration,
    )
    facts |= {'cost': dataclasses.asdict(cost)}
    facts |= estimate.facts(step, flops, topology.chip, topology.chips)
  return steps[-1].text, facts


def _cost(compiled):
  from bert_jax import hlo

  return None if compiled.text is None else hlo.cost(compiled.text)


def _extrapolate(few, more, layers):
  """Returns (memory, cost) on the line through two compiled steps."""
  from bert_jax import aot, hlo

  pairs = zip(
    *(dataclasses.astuple(c.memory) for c in (few, more)), strict=True
  )
  memory = aot.Memory(*(hlo.extrapolate_number(a, b, layers) for a, b in pairs))
  costs = _cost(few), _cost(more)
  if None in costs:
    return memory, None
  return memory, hlo.extrapolate(*costs, layers)


def roofline(config, topology, phase):
  """Returns the facts of a phase on GPUs, for which nothing is compiled."""
  from bert_jax import calibrate, estimate
  from bert_jax.tasks import pretrain

  chip, count = topology.chip, topology.chips
  flops = pretrain.objective(config).flops(phase)
  step = estimate.gpu_step(flops, chip, count, calibrate.read(chip.name))
  return _phase_facts(phase, flops) | estimate.facts(step, flops, chip, count)


def _phase_facts(phase, flops):
  return {**dataclasses.asdict(phase), 'model_flops_per_step': flops}


def report(config, topology, phases, price, programs, examined) -> dict:
  """Returns everything that is known, for JSON and `page.lines`.

  Args:
    config: the experiment.
    topology: what it would run on.
    phases: those that were examined.
    price: US dollars per chip and hour, None for that of `prices`.
    programs: what became of each; none where nothing was compiled.
    examined: the facts of each of them.
  """
  from bert_jax import distributed, estimate, prices

  listed = prices.USD_PER_CHIP_HOUR.get(topology.chip.name)
  used = listed if price is None else price
  seconds = [facts.get('step_seconds_estimate') for facts in examined]
  run = None
  if None not in seconds:
    pairs = list(zip((p.steps for p in phases), seconds, strict=True))
    run = dataclasses.asdict(estimate.run(pairs, topology.chips, used))
  return {
    'topology': topology.name,
    'slices': topology.slices,
    'chips': topology.chips,
    'devices': topology.devices,
    'hosts': topology.hosts,
    'layers': config.model.num_layers,
    'whole_run': len(phases) == len(config.phases.steps),
    'programs': programs,
    'phases': examined,
    'run_estimate': run,
    'usd_per_chip_hour': used,
    'price_source': 'given' if price is not None else f'list of {prices.AS_OF}',
    **distributed.versions(),
    'config': _timed(config),
  }


def _timed(config) -> dict:
  """Returns the fields that `calibrate` compares with those of a run."""
  from bert_jax import config as config_lib

  return {
    name: value
    for name, value in config_lib.flatten(config).items()
    if name in _TIMED or name.startswith('compute.')
  }


def _with_layers(config, n):
  copy = config.copy_and_resolve_references()
  copy.model.num_layers = n
  return copy


def _chosen(config, number: int | None):
  """Returns the phases to look at."""
  from bert_jax import task

  phases = task.phases(config)
  if number is None:
    return phases
  if not 0 <= number < len(phases):
    raise errors.UserError(
      f'--phase={number} is not one of 0 to {len(phases) - 1}; the config has '
      f'{len(phases)} phase(s).'
    )
  return [phases[number]]


def _check_flags(values, topology, phases):
  if values.price is not None and not values.price >= 0:
    raise errors.UserError(f'--price={values.price} must not be negative.')
  if values.hlo and not topology.is_tpu:
    raise errors.UserError(
      f'--hlo is for TPUs; nothing is compiled for {topology.name}.'
    )
  if values.hlo and len(phases) > 1:
    raise errors.UserError(
      '--hlo writes one program; say which by --phase=0 or another.'
    )


def main(argv):
  """Runs the command; returns 2 if the run cannot work."""
  del argv
  import jax

  from bert_jax import config_check, preflight_page
  from bert_jax import topology as topology_lib
  from bert_jax.data import files

  # The compiler alone is used; accelerators that are here stay free.
  jax.config.update('jax_platforms', 'cpu')
  values = flags.FLAGS
  try:
    config = values.config
    config_check.check(config)
  except OSError as error:  # how ml_collections reports a missing file
    path = values['config'].config_filename
    raise errors.UserError(
      f'cannot read --config={path}; give a file such as configs/large.py.'
    ) from error
  topology = topology_lib.parse(values.topology, values.slices)
  phases = _chosen(config, values.phase)
  _check_flags(values, topology, phases)

  def say(line):
    print(line, flush=True)

  programs, texts = [], {}
  if topology.is_tpu:
    programs, examined, texts = examine(
      config, topology, phases, values.quick, say
    )
  else:
    examined = [roofline(config, topology, phase) for phase in phases]
  found = report(config, topology, phases, values.price, programs, examined)
  say('\n'.join(preflight_page.lines(found, topology)))
  if values.json:
    files.write_json(values.json, found)
  if values.hlo:
    text = texts[phases[0].number]
    if text is None:
      raise errors.UserError(
        f'--hlo={values.hlo} was not written: what does not fit is not '
        'compiled to the end.'
      )
    files.write_text(values.hlo, text)
  fit = all(facts.get('fits', True) for facts in examined)
  return 0 if fit and all(program['ok'] for program in programs) else 2


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
  flags.DEFINE_integer('slices', 1, 'How many of them.')
  flags.DEFINE_integer('phase', None, 'Which phase; all of them by default.')
  flags.DEFINE_bool(
    'quick', False, 'Compile 2 and 4 layers and extrapolate to all.'
  )
  flags.DEFINE_float('price', None, 'US dollars per chip and hour.')
  flags.DEFINE_string('json', None, 'File for all figures.')
  flags.DEFINE_string(
    'hlo', None, 'File for the compiled training step of one phase, as text.'
  )
  flags.mark_flags_as_required(['config', 'topology'])


if __name__ == '__main__':
  _define_flags()
  command.run(main)
