"""The tables of aot.py, one printing function (programs, cases) per part."""

import aot_programs

from bert_jax.hardware import topology
from bert_jax.preflight import compile_step, estimate

GIB = 2**30
GOALS = {
  ('base', 128): 0.62,
  ('base', 512): 0.60,
  ('large', 128): 0.72,
  ('large', 512): 0.70,
}
GOAL_CHIPS = ('v5e', 'v5p', 'v4')
# Goals: cycles per sequence of FlaxBert by ours, at least.
FLAX_GOALS = {('base', 128): 1.6, ('large', 128): 1.3, ('base', 512): 1.8}
# Pairs in a packed row of 512 tokens, three at most; from docs/packing.md.
PACK, PAIRS_PER_ROW = 3, 56574 / 45331
DROPOUT_GOAL = 0.05
BATCH_GOAL = 2
KERNELS = ('computation', 'kernels')
COSTED = (*KERNELS, 'random bits', 'gathers and scatters')


def steps(programs, cases):
  head(
    'chip | size | S | cycles M | kernels M | bits M | moves M | '
    'collectives ms | CMU | + kernels | + rest | temporary GiB | goal'
  )
  for settings in cases:
    memory, cost = programs.line(settings)
    found = topology.parse(settings['topology'])
    parts = parts_of(cost, settings)
    flops = aot_programs.flops(settings)
    shares = [
      estimate.compute_cycle_utilisation(
        flops, sum(parts[name] for name in names), found.chip
      )
      for names in (KERNELS[:1], KERNELS, COSTED)
    ]
    row(
      *(found.chip.name, settings['size'], settings['length']),
      *(f'{parts[n] * clock(settings) / 1e6:.2f}' for n in COSTED),
      f'{parts["collectives"] * 1e3:.2f}',
      *(f'{share:.3f}' for share in shares),
      f'{memory.temporary / GIB:.2f}',
      verdict(settings, shares[1]),
    )
  for settings in cases:
    _, cost = programs.line(settings)
    left = ', '.join(
      f'{n:.0f} {opcode} ({cost.uncosted_bytes[opcode] / 1e6:,.0f} MB)'
      for opcode, n in cost.uncosted.items()
    )
    print(
      f'nothing is added on {settings["topology"]} for {settings["size"]} '
      f'S={settings["length"]}: {left or "-"}'
    )


def verdict(settings, share):
  goal = GOALS[settings['size'], settings['length']]
  if settings['topology'].partition(':')[0] not in GOAL_CHIPS:
    return '-'
  return f'{goal:.2f} {"met" if share >= goal else "MISSED"}'


def layers(programs, cases):
  """Prints what a layer takes: its products, and the ops between them."""
  head(
    'chip | size | S | products M | at the peak M | times | other ops M | times'
  )
  for settings in cases:
    few, more = aot_programs.FEW
    costs = [programs.get({**settings, 'layers': n})[1] for n in (few, more)]
    flops = [aot_programs.flops({**settings, 'layers': n}) for n in (few, more)]
    products, all_ops, work = (
      (b - a) / (more - few)
      for a, b in (
        [cost.product_cycles for cost in costs],
        [cost.cycles for cost in costs],
        flops,
      )
    )
    chip = topology.parse(settings['topology']).chip
    ideal = work / chip.flops * chip.devices * chip.cycles_per_second
    others = all_ops - products
    row(
      *(chip.name, settings['size'], settings['length']),
      *(f'{n / 1e6:.3f}' for n in (products, ideal)),
      f'{products / ideal:.2f}',
      f'{others / 1e6:.3f}',
      f'{others / ideal:.2f}',
    )


def flax(programs, cases):
  head(
    'chip | size | S | pairs/row | M cycles/pair | FlaxBert | '
    'times ours | with all | temporary GiB | FlaxBert | share | goal'
  )
  for settings in cases:
    compare(programs, settings, 1)
    if settings['length'] == 512:
      compare(programs, {**settings, 'pack': PACK}, PAIRS_PER_ROW)


def compare(programs, settings, pairs):
  """Prints a case with `pairs` per row in our step and one in the other."""
  ours, cost = programs.line(settings)
  theirs, other = programs.line({**settings, 'program': 'flax', 'pack': 1})
  rows = settings['rows'] / topology.parse(settings['topology']).devices
  each = [
    (
      cycles(cost, settings, names) / (rows * pairs),
      cycles(other, settings, names) / rows,
    )
    for names in (KERNELS, COSTED)
  ]
  ratio = each[0][1] / each[0][0]
  goal = FLAX_GOALS.get((settings['size'], settings['length']))
  if settings['length'] == 512 and pairs == 1:
    goal = None
  row(
    *(settings['topology'], settings['size'], settings['length']),
    f'{pairs:.3f}',
    *(f'{n / 1e6:.4f}' for n in each[0]),
    f'{ratio:.2f}',
    f'{each[1][1] / each[1][0]:.2f}',
    *(f'{m.temporary / GIB:.2f}' for m in (ours, theirs)),
    f'{ours.temporary / theirs.temporary:.2f}',
    '-' if goal is None else f'{goal} {"met" if ratio >= goal else "MISSED"}',
  )


def dropout(programs, cases):
  head('chip | size | S | M cycles without | with | share | all | goal')
  for settings in cases:
    _, cost = programs.line(settings)
    _, none = programs.line({**settings, 'dropout': 0.0})
    shares = [
      1 - cycles(none, settings, names) / cycles(cost, settings, names)
      for names in (KERNELS, COSTED)
    ]
    row(
      *(settings['topology'], settings['size'], settings['length']),
      *(f'{cycles(c, settings, KERNELS) / 1e6:.2f}' for c in (none, cost)),
      *(f'{share:.1%}' for share in shares),
      f'{DROPOUT_GOAL:.0%} {"met" if shares[0] <= DROPOUT_GOAL else "MISSED"}',
    )
  if cases[0]['topology'].startswith('v5e'):
    random_bytes(programs, cases[0])


def random_bytes(programs, settings):
  """Prints the random bytes per device on 4 and on 64 chips, two layers."""
  more = {**settings, 'topology': 'v5e:8x8', 'rows': 16 * settings['rows']}
  few, many = (
    programs.get({**s, 'layers': 2})[1].rng_bytes for s in (settings, more)
  )
  print(
    f'random bytes of a device, 2 layers: {few:,.0f} on v5e:2x2, {many:,.0f} '
    f'on v5e:8x8: {"met" if many <= few else "MISSED"}'
  )


def memory(programs, cases):
  """Prints the largest batch per chip, from the memory of two batches."""
  head(
    'chip | size | S | MiB of a row | FlaxBert | rows | FlaxBert | times | goal'
  )
  for settings in cases:
    found = topology.parse(settings['topology'])
    usable = compile_step.get_usable_memory(
      compile_step.describe_devices(found)[0]
    )
    few = settings['rows'] // found.devices
    each, most = [], []
    for program in ('ours', 'flax'):
      case = {**settings, 'program': program}
      twice = {**case, 'rows': 2 * case['rows']}
      a, b = (programs.line(c)[0].total for c in (case, twice))
      each.append((b - a) / few)
      most.append(int(few + (usable - a) / each[-1]))
    ratio = most[0] / most[1]
    row(
      *(settings['topology'], settings['size'], settings['length']),
      *(f'{n / 2**20:.2f}' for n in each),
      *most,
      f'{ratio:.2f}',
      f'{BATCH_GOAL} {"met" if ratio >= BATCH_GOAL else "MISSED"}',
    )


def full(programs, cases):
  """Prints how far the extrapolation is from compiling all layers."""
  settings = cases[0]
  layers = aot_programs.FULL[settings['size']]
  _, exact = programs.get({**settings, 'layers': layers})
  _, cost = programs.line(settings)
  error = cost.cycles / exact.cycles - 1
  print(
    f'{settings["topology"]} {settings["size"]} S={settings["length"]}: '
    f'{cost.cycles / 1e6:.2f} M cycles by the line, '
    f'{exact.cycles / 1e6:.2f} M compiled: {error:+.1%}'
  )


def parts_of(cost, settings):
  """Returns {what: seconds} of a step."""
  generator = 'rbg' if settings['dropout'] else 'none'
  found = topology.parse(settings['topology'])
  return estimate.estimate_tpu_step(cost, found, generator=generator).parts


def cycles(cost, settings, names):
  """Returns some of the parts of a step, in cycles."""
  parts = parts_of(cost, settings)
  return sum(parts[name] for name in names) * clock(settings)


def clock(settings):
  return topology.parse(settings['topology']).chip.cycles_per_second


def row(*cells):
  print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)


def head(names):
  print(f'| {names} |')
  row(*('---' for _ in names.split(' | ')))
