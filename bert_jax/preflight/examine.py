"""Compiles the programs of a run for absent accelerators and describes them.

Time is a roofline, from the figures of `chips`: model FLOPs at a share of the peak,
the update of the parameters at the bandwidth of the memory, and the collectives at
that of the links, beside the computation at best and after it at worst.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.hardware import accelerators, chips
from bert_jax.hardware.chips import PRICES_AS_OF, USD_PER_CHIP_HOUR
from bert_jax.parallel import agreement, device_mesh
from bert_jax.preflight import compile_step
from bert_jax.trainer import programs, task


def examine(
  config: config_dict.ConfigDict,
  topology: accelerators.Topology,
  phases: list[task.Phase],
  quick: bool,
  say: Callable[[str], None] = print,
):
  """Compiles the programs of a run for a TPU slice or for GPUs.

  If `quick`, only 2 and 4 layers, from which it extrapolates; of the modern body,
  whose layers differ, those from one that sees all to the next, and twice as many.

  Returns:
    (programs, facts, texts): for JSON, a list of each program's result, and a
    dict for each phase; and {phase: HLO text of its training step} (with
    `quick`, of the most layers) for those that compiled.
  """
  devices = compile_step.describe_devices(topology)
  mesh = device_mesh.make_mesh(config.mesh.model, devices=devices)
  for phase in phases:
    device_mesh.check_batch(mesh, phase.batch_size, phase.accumulate)
  layers, make = [config.model.num_layers], tasks.get(config).make_objective
  few = _count_few(make(config).bert)
  if quick and layers[0] > 2 * few:
    layers = [few, 2 * few]
  runs = []
  for n in layers:
    say(f'compiling the programs of a run with {n} layers ...')
    fewer = config.copy_and_resolve_references()
    fewer.model.num_layers = n
    objective = make(fewer)
    start = programs.list_start(fewer, objective, mesh)
    runs.append(
      programs.compile_run(fewer, objective, mesh, start, phases, say)
    )
  usable = compile_step.get_usable_memory(topology, devices[0])
  objective, facts, texts = make(config), [], {}
  # The sums of gradients, and rounded weights.
  sums = compile_step.count_gradient_bytes(objective.init, mesh)
  sent = _narrow(sums, config.optimizer.reduce_dtype)
  sent += _narrow(sums, config.model.dtype)
  for phase in phases:
    predicted = objective.batch_shapes(phase, 1).get('masked_lm_ids')
    own = dataclasses.asdict(phase) | {
      'layers': objective.bert.num_layers,
      'predictions': predicted.size if predicted else 0,  # of a row, at most
      'model_flops_per_step': objective.flops(phase),
      'usable_bytes': usable,
      'fits': None,
    }
    if config.task != 'pretraining' and phase.steps == 1:
      own['steps'] = None  # they follow from the data
    steps = [_training_step(run[phase], devices[0].platform) for run in runs]
    texts[phase.number] = None
    if None not in steps:
      texts[phase.number] = steps[-1].text
      given = objective, topology, mesh, phase
      own |= _judge_step(*given, usable, steps, sums)
      memory = compile_step.Memory(**own['memory'])
      own |= estimate_time(*given, memory, sent)
    compute = dataclasses.asdict(runs[-1][phase].how)
    facts.append(own | {'compiled_layers': layers, 'compute': compute})
  return _verdicts(runs, layers), facts, texts


def _training_step(result, platform):
  """Returns the compiled training step; None if the compiler rejected it."""
  (step,) = (o for o in result.outcomes if o.program.name == programs.TRAIN)
  return None if step.refused else compile_step.examine(step, platform)


def _verdicts(runs, layers) -> list[dict]:
  """Returns `{name, phase, ok, reason}` of each program, and of shallow failures."""
  found = []
  for run, n in zip(runs, layers, strict=True):
    depth = f'with {n} layers ' if len(layers) > 1 else ''
    for outcome in (o for result in run.values() for o in result.outcomes):
      program, why = outcome.program, programs.describe_problem(outcome)
      where = '' if program.length is None else f'at length {program.length} '
      if why or n == layers[-1]:
        verdict = {'name': program.name, 'phase': program.phase, 'ok': not why}
        found.append(verdict | {'reason': why and f'{depth}{where}it {why}'})
  return found


def _judge_step(objective, topology, mesh, phase, usable, steps, sums):
  """Returns what fits, by the compiled step with all layers, or two with few."""
  memory = steps[0].memory
  if len(steps) > 1:
    known, bert = [x.memory for x in steps], objective.bert
    memory = _extrapolate(*known, bert.num_layers, _count_few(bert))
  fits = memory.total <= usable
  if topology.is_tpu and len(steps) == 1:  # it was judged by the compiler
    fits = steps[0].text is not None
  return {
    'fits': fits,
    'needed_bytes': memory.total,
    'memory': dataclasses.asdict(memory),
    **estimate_batch(
      memory.total,
      _count_fixed(objective.bert.dtype, topology, memory, sums),
      *(usable, sums, phase, mesh.shape['data']),
    ),
  }


def _count_few(bert) -> int:
  """Returns the least layers that have all kinds of layers, in proportion."""
  return bert.global_every if bert.modern else 2


def _extrapolate(less, more, layers, few=2):
  """Returns the memory of all layers, on a line through those of few and 2 few."""
  pairs = zip(dataclasses.astuple(less), dataclasses.astuple(more), strict=True)
  line = (max(a + (b - a) * (layers - few) / few, 0) for a, b in pairs)
  return compile_step.Memory(*line)


def _count_fixed(dtype, topology, memory, sums):
  """Returns the bytes of a device that do not depend on its rows."""
  state = memory.parameters + memory.optimizer + memory.program
  if topology.is_tpu:
    return state + memory.parameters  # the size of the gradients' shards
  # Rounded or gathered, weights are a copy.
  copied = topology.devices > 1 or dtype != 'float32'
  return state + _narrow(sums, dtype) * (2 if copied else 1)


def _narrow(size, dtype):
  """Returns the bytes of float32 numbers in a type."""
  return size * jnp.dtype(dtype).itemsize // 4


def estimate_time(
  objective: task.Objective,
  topology: accelerators.Topology,
  mesh: Mesh,
  phase: task.Phase,
  memory: compile_step.Memory,
  sent: float,
) -> dict:
  """Estimates a step, in which a device sends bytes of gradients and weights."""
  bert, how, split = objective.bert, objective.how, mesh.shape['model']
  chip = topology.chip.for_products(bert.dtype, how.matmul_precision)
  tokens = phase.batch_size * phase.seq_length / mesh.shape['data']
  at_once, mlp = tokens / phase.accumulate, bert.mlp_size / split
  shares, why = list_shares(chip, at_once, bert.hidden_size, mlp)
  if split > 1:  # four sums of activations per layer
    own = tokens * bert.hidden_size * jnp.dtype(bert.dtype).itemsize
    sent += 4 * bert.num_layers * 2 * own
  others = {
    'optimizer': time_update(
      memory.parameters, memory.parameters + memory.optimizer, chip
    ),
    'collectives': time_collectives(sent, topology),
  }
  flops, peak = objective.flops(phase), chip.flops * topology.chips
  return estimate_step(flops, peak, shares, why, others)


def list_shares(
  chip: chips.Chip, tokens: float, hidden: int, mlp: float
) -> tuple[tuple[float, float], str]:
  """Returns which shares of its peak a chip may reach, and why, as a line.

  Args:
    tokens: that a device computes at a time.
    mlp: model.mlp_size, or the device's part of it.
  """
  worst, best = chip.reached
  if chip.memory is not None:  # a GPU
    return chip.reached, f'{worst:.0%} to {best:.0%} of the peak'
  alone = chip.find_product_share((tokens * hidden * mlp) ** (1 / 3))
  source = 'TPU7x' if chip.product is None else 'this chip'
  why = (
    f'{alone * worst:.0%} to {alone * best:.0%} of the peak, {worst:g} to '
    f'{best:g} x the {alone:.0%} that products of this size reach by '
    f'measurements on {source}'
  )
  return (alone * worst, alone * best), why


def estimate_step(
  flops: float,
  peak: float,
  shares: tuple[float, float],
  why: str,
  others: dict[str, float],
) -> dict:
  """Estimates a step for JSON.

  Args:
    flops: of the global batch; `peak`, FLOP/s of all chips.
    shares: of the peak, at worst and at best, and `why`, from `list_shares`.
    others: seconds of `optimizer` and `collectives`.
  """
  least, (worst, best) = flops / peak, shares
  low = max(least / best, others['collectives']) + others['optimizer']
  high = least / worst + sum(others.values())
  return {
    'step_seconds_estimate': [low, high],
    'step_seconds_parts': {'computation at peak': least, **others},
    'step_seconds_range': why,
    'utilisation_estimate': [least / high, least / low],
  }


def time_update(parameters: float, state: float, chip: chips.Chip) -> float:
  """Returns seconds of an update, of a device's bytes of parameters and state.

  The state, which includes them, is read and written, the gradient read.
  """
  return (2 * state + parameters) / (chip.hbm_bandwidth / chip.devices)


def time_collectives(sent: float, topology: accelerators.Topology) -> float:
  """Returns seconds to add up gradients and gather weights, bytes of a device."""
  chip, slices = topology.chip, topology.slices
  if not topology.is_tpu:  # hosts are taken to be linked as GPUs are
    n = topology.chips
    return sent * (1 - 1 / n) / (chip.link_bandwidth / 2)
  each = topology.chips // slices
  links = sum(topology.axis_links) * chip.link_speed
  seconds = sent * (1 - 1 / each) / links if each > 1 else 0.0
  if slices > 1:  # each chip exchanges its part with those of other slices
    seconds += sent / each * (1 - 1 / slices) / chip.network_bandwidth
  return seconds


def estimate_run(
  steps: Sequence[tuple[int, tuple[float, float]]],
  count: int,
  price: float | None,
) -> dict:
  """Estimates a run for JSON, without evaluation, saving and compiling.

  Args:
    steps: for each phase (number of steps, (lowest, highest) seconds of one).

  Returns:
    {what: (lowest, highest)}; `dollars` are None without a price.
  """
  hours = tuple(
    sum(n * seconds[end] for n, seconds in steps) / 3600 for end in (0, 1)
  )
  chip_hours = tuple(h * count for h in hours)
  dollars = None if price is None else tuple(h * price for h in chip_hours)
  return {'hours': hours, 'chip_hours': chip_hours, 'dollars': dollars}


def estimate_batch(
  needed: float,
  fixed: float,
  limit: float,
  sums: float,
  phase: task.Phase,
  shares: int,
) -> dict:
  """Estimates for JSON which batches fit, by what that of a phase needs.

  The model is bytes = fixed + constant x (sequences per micro-batch), and `sums`
  more with several micro-batches; all are of a device.

  Args:
    shares: parts that the rows are split into over the devices.

  Returns:
    `largest_batch_estimate`, sequences per update with as many micro-batches,
    None if the batch is too small to extrapolate from; and
    `accumulate_that_fits_estimate`, micro-batches, None if none do.
  """
  rows, parts = phase.batch_size // shares, phase.accumulate

  def leave(parts):
    return limit - fixed - (sums if parts > 1 else 0)

  each, largest = max(needed - limit + leave(parts), 0) / (rows // parts), None
  if each:
    largest = int(max(leave(parts), 0) / each) * shares * parts
  fitting = (
    n
    for n in range(1, rows + 1)
    if rows % n == 0 and each * rows / n <= leave(n)
  )
  return {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': next(fitting, None),
  }


def make_report(
  topology: accelerators.Topology,
  price: float | None,
  programs: list[dict],
  examined: list[dict],
  whole: bool = True,
) -> dict:
  """Returns everything that is known, for JSON and `render`.

  Args:
    price: US dollars per chip and hour; None uses the price in `chips`.
    programs, examined: from `examine`; `whole`, whether of all phases.
  """
  listed = USD_PER_CHIP_HOUR.get(topology.chip.name)
  used = listed if price is None else price
  pairs = [(x['steps'], x.get('step_seconds_estimate')) for x in examined]
  run = None
  if not any(None in pair for pair in pairs):
    run = estimate_run(pairs, topology.chips, used)
  sizes = {
    x: getattr(topology, x) for x in 'slices chips devices hosts'.split()
  }
  return {
    'topology': topology.name,
    **sizes,
    'whole_run': whole,
    'programs': programs,
    'phases': examined,
    'run_estimate': run,
    'usd_per_chip_hour': used,
    'price_source': 'given' if price is not None else f'list of {PRICES_AS_OF}',
    **agreement.get_versions(),
  }
