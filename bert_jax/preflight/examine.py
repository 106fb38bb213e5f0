"""Compiles the programs of a run for absent accelerators and describes them."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import tasks
from bert_jax.hardware import accelerators
from bert_jax.hardware.chips import PRICES_AS_OF, USD_PER_CHIP_HOUR
from bert_jax.parallel import agreement, device_mesh
from bert_jax.preflight import compile_step, estimate
from bert_jax.trainer import programs, task

_QUICK_LAYERS = 2, 4


def examine(
  config: config_dict.ConfigDict,
  topology: accelerators.Topology,
  phases: list[task.Phase],
  quick: bool,
  say: Callable[[str], None] = print,
):
  """Compiles the programs of a run for a TPU slice or for GPUs.

  If `quick`, only 2 and 4 layers, from which it extrapolates.

  Returns:
    (programs, facts, texts): for JSON, a list of each program's result, and a
    dict for each phase; and {phase: HLO text of its training step} (with
    `quick`, of four layers) for those that compiled.
  """
  devices = compile_step.describe_devices(topology)
  mesh = device_mesh.make_mesh(config.mesh.model, devices=devices)
  for phase in phases:
    device_mesh.check_batch(mesh, phase.batch_size, phase.accumulate)
  layers, make = [config.model.num_layers], tasks.get(config).make_objective
  if quick and layers[0] > max(_QUICK_LAYERS):
    layers = [*_QUICK_LAYERS]
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
    memory = _extrapolate(*(x.memory for x in steps), objective.bert.num_layers)
  fits = memory.total <= usable
  if topology.is_tpu and len(steps) == 1:  # it was judged by the compiler
    fits = steps[0].text is not None
  return {
    'fits': fits,
    'needed_bytes': memory.total,
    'memory': dataclasses.asdict(memory),
    **estimate.estimate_batch(
      memory.total,
      _count_fixed(objective.bert.dtype, topology, memory, sums),
      *(usable, sums, phase, mesh.shape['data']),
    ),
  }


def _extrapolate(two, four, layers):
  """Returns the memory of all layers, on a line through those of 2 and of 4."""
  pairs = zip(dataclasses.astuple(two), dataclasses.astuple(four), strict=True)
  line = (max(a + (b - a) * (layers - 2) / 2, 0) for a, b in pairs)
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
  shares, why = estimate.list_shares(chip, at_once, bert.hidden_size, mlp)
  if split > 1:  # four sums of activations per layer
    own = tokens * bert.hidden_size * jnp.dtype(bert.dtype).itemsize
    sent += 4 * bert.num_layers * 2 * own
  others = {
    'optimizer': estimate.time_update(
      memory.parameters, memory.parameters + memory.optimizer, chip
    ),
    'collectives': estimate.time_collectives(sent, topology),
  }
  flops, peak = objective.flops(phase), chip.flops * topology.chips
  return estimate.estimate_step(flops, peak, shares, why, others)


def make_report(
  topology: accelerators.Topology,
  price: float | None,
  programs: list[dict],
  examined: list[dict],
  whole: bool = True,
) -> dict:
  """Returns everything that is known, for JSON and `page.render`.

  Args:
    price: US dollars per chip and hour; None uses the price in `chips`.
    programs, examined: from `examine`; `whole`, whether of all phases.
  """
  listed = USD_PER_CHIP_HOUR.get(topology.chip.name)
  used = listed if price is None else price
  pairs = [(x['steps'], x.get('step_seconds_estimate')) for x in examined]
  run = None
  if not any(None in pair for pair in pairs):
    run = estimate.estimate_run(pairs, topology.chips, used)
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
