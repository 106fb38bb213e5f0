"""What a run needs and costs, asked before anything is rented."""

import hashlib
import json
import os
import sys

from bert_jax import errors
from bert_jax.hardware.chips import PRICES_AS_OF
from launch import records
from launch.plan import Plan
from launch.world import Result, World

_LONG = 7200  # seconds; compiling LARGE takes 20 minutes

# In a process of its own, as the flags of a config are global.
_CHECK = """
from absl import flags
from ml_collections import config_flags
from bert_jax import config_check
from bert_jax.runtime import cli
config_flags.DEFINE_config_file('config')
cli.run(lambda: config_check.check(flags.FLAGS.config))
"""


def check_config(world: World, config: str, overrides):
  """Refuses a config that a run would refuse."""
  argv = [sys.executable, '-c', _CHECK, f'--config={config}', *overrides]
  result = world.run(argv)
  if result.code:
    raise errors.UserError(_reason(result))


def run_preflight(world: World, plan, config: str, key: str) -> dict | None:
  """Returns preflight's estimate of a run, and refuses what does not fit.

  `config` is --config from the current directory. The same command with
  the same `key`, which changes with the code, runs once.
  """
  argv = [sys.executable, '-m', 'bert_jax.preflight', f'--config={config}']
  argv += [*plan.overrides, f'--topology={plan.topology.name}', '--quick']
  argv += [f'--slices={plan.topology.slices}']
  argv += [] if plan.price is None else [f'--price={plan.price}']
  digest = hashlib.sha256('\n'.join([key, *argv]).encode()).hexdigest()
  path = os.path.join(records.folder(), f'preflight-{digest[:16]}.json')
  if not os.path.exists(path):
    result = world.run([*argv, f'--json={path}.new'], seconds=_LONG)
    if result.code:
      lines = result.out.strip().splitlines()[-40:]
      lines.append(f'preflight: {_reason(result)}')
      raise errors.UserError('\n'.join(lines))
    os.replace(f'{path}.new', path)
  with open(path, encoding='utf-8') as file:
    return json.load(file)['run_estimate']


def _reason(result: Result) -> str:
  if result.code == 2:
    return 'the run does not fit these chips or cannot start on them.'
  lines = result.err.strip().splitlines() or [f'exit code {result.code}']
  return lines[-1].removeprefix('error: ')


def describe_plan(plan: Plan, project: str, price) -> list[str]:
  """Returns what is to be rented, at the price that was given or None."""
  topology, costs = plan.topology, 'not known; give --price=USD a chip and hour'
  where = f'{topology.chips:,} chips on {topology.hosts:,} host(s)'
  where += f' in {topology.slices} slices' * (topology.slices > 1)
  if plan.price is not None:
    source = f'list of {PRICES_AS_OF}, on demand; give --price for yours'
    costs = f'{topology.chips:,} chips x ${plan.price:.2f}'
    costs += f'{plan.price_of(1, " = ")} an hour '
    costs += f'({source})' if price is None else '(given)'
  limit = f'{plan.hours:,.1f} hours of rent{plan.price_of(plan.hours)}'
  where += f', {plan.model}, in {" or ".join(plan.zones)}'
  inside = ', internal addresses only (docs/launch.md#network)'
  where += inside if '--internal-ips' in plan.network else ''
  return [
    f'run       {plan.name}: {plan.config} {" ".join(plan.overrides)}',
    f'project   {project}',
    f'machines  {topology.name}, {where}',
    f'price     {costs}',
    f'limit     {limit}; then the run is stopped',
  ]


def format_estimate(estimate: dict) -> str:
  """Returns the hours and the price of preflight's estimate."""
  texts = []
  for name, unit, end in (('hours', '', ' hours'), ('dollars', '$', '')):
    match estimate.get(name):
      case [int() | float() as low, int() | float() as high]:
        texts.append(f'{unit}{low:,.3g} to {unit}{high:,.3g}{end}')
  return ', '.join(texts)


def describe(plan: Plan, estimate: dict | None) -> list[str]:
  """Returns lines on preflight's estimate, if it has one."""
  if not estimate:
    return ['preflight time and price of the run are not known']
  lines = [f'preflight it fits; {format_estimate(estimate)} (estimated)']
  if estimate['hours'][0] > plan.hours:
    lines.append(f'warning   the limit of {plan.hours:,.2f} hours is below: ')
    lines[1] += 'the run will be stopped, and goes on when it is started again'
  return lines
