"""`launch/tpu.py run`: all checks before money is spent, then the watch."""

import argparse
import pathlib
import shlex
import sys

from bert_jax import errors
from bert_jax.hardware.chips import PRICES_AS_OF
from launch import access, archive, control, queued, records, tick
from launch.bucket import write
from launch.plan import Plan, make_plan
from launch.supervisor import Ledger
from launch.world import Unknown, World, say, shorten

_LONG = 7200  # seconds of preflight; compiling LARGE takes 20 minutes

# In a process of its own, as the flags of a config are global.
_CHECK = """
from absl import flags
from ml_collections import config_flags
from bert_jax import config_check
from bert_jax.runtime import cli
config_flags.DEFINE_config_file('config')
cli.run(lambda: config_check.check(flags.FLAGS.config))
"""


def run(world: World, given: argparse.Namespace) -> int:
  """Starts a run or goes on watching it; returns the exit code."""
  plan = make_plan(given)
  down = f'python launch/tpu.py down {plan.name}'
  say(f'to end everything: {down} --workdir={plan.workdir}')
  if given.dry_run:  # needs no login
    setting = world.run(['gcloud', 'config', 'get', 'project'])
    world.project = setting.out.strip() or 'PROJECT'
  else:
    world.project = control.choose_project(world)
  config = archive.check_config(plan.config)
  check_config(world, plan.config, plan.overrides)
  plan.config = config
  packed, sha256 = archive.make()
  say(_describe(plan, world.project))
  if given.dry_run:
    return _print_request(world, plan, sha256)
  resources, silent = queued.find(world, ['-'])
  # Others may be down for days without being of interest.
  for zone in {'-', *plan.zones} & {*silent}:
    raise Unknown(f'{zone}: {silent[zone]}')
  resources = [item for item in resources if item.run == plan.name]
  zones = plan.zones if resources else queued.check_zones(world, plan)
  # Hosts in a zone that is not asked for any more are watched, too.
  plan.zones = [*dict.fromkeys([*zones, *(x.zone for x in resources)])]
  ledger, generation = records.open_launch(world, plan, resources, sha256)
  if ledger.attempts or resources:
    say(f'going on with launch {ledger.job}: nothing is asked again')
  else:
    access.check(world, plan)
    if not given.no_preflight:
      run_preflight(world, plan, given.config)
    if not given.yes and not _ask(plan):
      say('nothing was rented.')
      return 1
  if ledger.sha256 == sha256:
    write(world, f'{plan.workdir}/launch/code-{sha256}.tar.gz', packed)
  records.write_note(world, plan)
  records.save(world, plan.workdir, ledger, generation)
  try:
    return tick.take_all(world, plan.workdir)
  except KeyboardInterrupt:
    say('\nno longer watching. The hosts KEEP RUNNING AND COSTING. The same')
    say(f'command, or "tick {plan.name}", goes on; "{down}" ends them.')
    return 130


def check_config(world: World, config: str, overrides):
  """Refuses a config that a run would refuse."""
  argv = [sys.executable, '-c', _CHECK, f'--config={config}', *overrides]
  result = world.run(argv)
  if result.code:
    raise errors.UserError(shorten(result.err).removeprefix('error: '))


def run_preflight(world: World, plan: Plan, config: str):
  """Shows preflight's page on a run, and refuses what does not fit.

  `config` is --config from the current directory.
  """
  say('preflight: compiling the run for these chips ...')
  argv = [sys.executable, '-m', 'bert_jax.preflight', f'--config={config}']
  argv += [*plan.overrides, f'--topology={plan.slice}', '--quick']
  argv += [f'--slices={plan.slices}']
  argv += [] if plan.price is None else [f'--price={plan.price}']
  result = world.run(argv, seconds=_LONG)
  say(result.out)
  if result.code:
    why = shorten(result.err) if result.code != 2 else 'the run does not fit'
    raise errors.UserError(f'preflight: {why}')


def _describe(plan, project) -> str:
  """Returns what is to be rented, and at which price."""
  topology, costs = plan.topology, 'not known; give --price=USD a chip and hour'
  where = f'{topology.chips:,} chips on {topology.hosts:,} host(s)'
  where += f' in {topology.slices} slices' * (topology.slices > 1)
  where += f', {plan.model}, in {" or ".join(plan.zones)}'
  if plan.price is not None:
    costs = f'{topology.chips:,} chips x ${plan.price:.2f}'
    costs += f'{plan.price_of(1, " = ")} an hour, by --price or a list of '
    costs += f'{PRICES_AS_OF}, on demand'
  limit = f'{plan.hours:,.1f} hours of rent{plan.price_of(plan.hours)}'
  return f"""run       {plan.name}: {plan.config} {' '.join(plan.overrides)}
project   {project} {' '.join(plan.network)}
machines  {topology.name}, {where}
price     {costs}
limit     {limit}; then the run is stopped, and can go on later"""


def _ask(plan) -> bool:
  try:
    price = plan.price_of(plan.hours, ' for at most ')
    return input(f'rent this{price}? [y/N] ').strip().lower() in ('y', 'yes')
  except EOFError:
    raise errors.UserError('there is no terminal; give --yes.') from None


def _print_request(world, plan, sha256) -> int:
  """Prints the request, and what the hosts will be told."""
  ledger = Ledger('LAUNCH-123456', sha256=sha256)
  create, path = tick.prepare_request(world, plan, ledger)
  say(f'{shlex.join(create)} --project={world.project}\nwith {path}:')
  say(pathlib.Path(path).read_text(encoding='utf-8'))
  return 0
