"""What a run needs and costs, asked before anything is rented."""

import hashlib
import json
import os
import sys

from bert_jax import errors
from bert_jax.hardware import prices
from launch import commands, slices
from launch import plan as plan_lib

_HERE = os.path.dirname(os.path.abspath(__file__))
_LONG = 7200  # seconds; compiling LARGE takes 20 minutes


def check_config(run: commands.Execute, config: str, overrides) -> dict:
  """Checks the config in a process of its own.

  Args:
    run: runs commands.
    config: `--config` from the current directory.
    overrides: `--config.field=value`.

  Returns:
    What launch/check_config.py prints; {} in a dry run.

  Raises:
    errors.UserError: if a run would refuse it.
  """
  path = os.path.join(_HERE, 'check_config.py')
  result = run([sys.executable, path, f'--config={config}', *overrides])
  if result.code:
    raise errors.UserError(_reason(result))
  lines = result.out.strip().splitlines()
  return json.loads(lines[-1]) if lines else {}


def run_preflight(
  run: commands.Execute, plan: plan_lib.Plan, config: str, folder: str, key: str
) -> dict | None:
  """Compiles the run for its slice and returns preflight's figures.

  Args:
    run: runs commands.
    plan: the run.
    config: `--config` from the current directory.
    folder: where the figures are kept, so that the same question is not asked
      twice.
    key: changes with the code.

  Returns:
    What `bert_jax.preflight --json` writes; None in a dry run.

  Raises:
    errors.UserError: if the run does not fit or cannot start.
  """
  argv = [
    *(sys.executable, '-m', 'bert_jax.preflight', f'--config={config}'),
    *plan.overrides,
    f'--topology={plan.topology.name}',
    f'--slices={plan.topology.slices}',
    '--quick',
    *([] if plan.price is None else [f'--price={plan.price}']),
  ]
  digest = hashlib.sha256('\n'.join([key, *argv]).encode()).hexdigest()
  path = os.path.join(folder, f'preflight-{digest[:16]}.json')
  if not os.path.exists(path):
    result = run([*argv, f'--json={path}.new'], seconds=_LONG)
    if result.code:
      lines = result.out.strip().splitlines()[-40:]
      raise errors.UserError(
        '\n'.join([*lines, f'preflight: {_reason(result)}'])
      )
    if not os.path.exists(f'{path}.new'):
      return None
    os.replace(f'{path}.new', path)
  with open(path, encoding='utf-8') as file:
    return json.load(file)


def _reason(result: commands.Result) -> str:
  if result.code == 2:
    return 'the run does not fit these chips or cannot start on them.'
  lines = result.err.strip().splitlines() or [f'exit code {result.code}']
  return lines[-1].removeprefix('error: ')


def describe(
  plan: plan_lib.Plan, found: dict | None, checkpoint_every: int | None
) -> list[str]:
  """Returns lines on time, price and what a preemption costs.

  Args:
    plan: the run.
    found: from `run_preflight`; None if it was not asked.
    checkpoint_every: steps between checkpoints.
  """
  if found is None:
    return ['preflight skipped: neither fit nor time is known']
  lines = []
  estimate = found['run_estimate']
  if estimate:
    line = (
      f'preflight it fits; {plan_lib.format_range(estimate["hours"])} hours'
    )
    if estimate.get('dollars'):
      line += f', {plan_lib.format_range(estimate["dollars"], "$")}'
    lines.append(f'{line} (estimated)')
    if estimate['hours'][0] > plan.hours:
      lines.append(
        f'warning   the limit of {plan.hours:,.2f} hours is below the estimate: '
        'the run will be stopped, and goes on when it is started again'
      )
  steps = [
    facts['step_seconds_estimate'][1]
    for facts in found['phases']
    if 'step_seconds_estimate' in facts
  ]
  if plan.spot and checkpoint_every and steps:
    lost = checkpoint_every * max(steps)
    lines.append(
      f'preempted at most {lost / 60:,.1f} minutes of work are lost '
      f'(checkpoint.every={checkpoint_every}), plus the wait for new hosts'
      + _price_of(plan, lost)
    )
  return lines


def _price_of(plan, seconds) -> str:
  if plan.usd_per_hour is None:
    return ''
  return f'; ${plan.usd_per_hour * seconds / 3600:,.2f}'


def describe_price_source(given_price: float | None) -> str:
  """Returns where the price comes from."""
  if given_price is not None:
    return 'given'
  return f'list of {prices.AS_OF}, on demand; give --price for yours'


def describe_network(plan: plan_lib.Plan) -> list[str]:
  """Returns what the network must have for this many hosts."""
  if plan.topology.hosts <= slices.MAX_ADDRESSES:
    return []
  return [
    f'network   {plan.topology.hosts} hosts have internal addresses only: '
    'their network needs Cloud NAT and Private Google Access (docs/launch.md)'
  ]
