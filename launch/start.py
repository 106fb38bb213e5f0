"""`launch/tpu.py run`: all checks before money is spent, then the watch."""

import argparse
import dataclasses
import shlex

from bert_jax import errors
from launch import access, archive, control, estimate, queued, records, tick
from launch.bucket import write
from launch.plan import make_plan
from launch.supervisor import Ledger
from launch.terminal import Screen
from launch.world import Unknown, World, log_in, read_setting, say


def run(given: argparse.Namespace, world: World) -> int:
  """Starts a run or goes on watching it; returns the exit code."""
  plan = make_plan(given)
  down = f'python launch/tpu.py down {plan.name}'
  say(f'to end everything: {down} --workdir={plan.workdir}')
  world.project = choose_project(world, given.dry_run)
  config = archive.check_config(plan.config)
  estimate.check_config(world, plan.config, plan.overrides)
  plan = dataclasses.replace(plan, config=config)
  packed, sha256 = archive.make()
  for line in estimate.describe_plan(plan, world.project, given.price):
    say(line)
  if given.dry_run:
    return _print_all(world, plan, sha256)
  found, silent = control.look(world, plan.name, plan.zones)
  # Others may be down for days without being of interest.
  for zone in {'-', *plan.zones} & {*silent}:
    raise Unknown(f'{zone}: {silent[zone]}')
  found = [item for item in found if item.run == plan.name]
  zones = plan.zones if found else queued.check_zones(world, plan)
  # Hosts in a zone that is not asked for any more are watched, too.
  zones = dict.fromkeys([*zones, *(item.zone for item in found)])
  plan = dataclasses.replace(plan, zones=tuple(zones))
  ledger, generation = records.open_launch(world, plan, found, sha256)
  if not ledger.attempts and not found:
    access.check(world, plan)
    hours = None
    if not given.no_preflight:
      say('preflight: compiling the run for these chips ...')
      hours = estimate.run_preflight(world, plan, given.config, sha256)
    for line in estimate.describe(plan, hours):
      say(line)
    if not given.yes and not _ask(plan):
      say('nothing was rented.')
      return 1
  else:
    say(f'going on with launch {ledger.job}: nothing is asked again')
  if ledger.sha256 == sha256:
    write(world, f'{plan.workdir}/launch/code-{sha256}.tar.gz', packed)
  records.write_note(world, plan)
  records.save(world, plan.workdir, ledger, generation)
  try:
    return tick.take_all(world, plan.workdir, Screen(world))
  except KeyboardInterrupt:
    say('\nno longer watching. The hosts KEEP RUNNING AND COSTING. The same')
    say(f'command, or "tick {plan.name}", goes on; "{down}" ends them.')
    return 130


def choose_project(world: World, dry_run: bool = False) -> str:
  """Returns gcloud's project; a dry run needs no login for it."""
  if dry_run:
    found = world.run(['gcloud', 'config', 'get', 'project']).out.strip()
    return found or 'PROJECT'
  for pause in (2, 5, None):  # its token may be renewed at this second
    try:
      log_in(world)
      break
    except Unknown:
      if pause is None:
        raise
      world.sleep(pause)
  found = read_setting(world, 'core', 'project')
  if not found:
    raise errors.UserError('no project: gcloud config set project NAME')
  return found


def _ask(plan) -> bool:
  try:
    price = plan.price_of(plan.hours, ' for at most ')
    return input(f'rent this{price}? [y/N] ').strip().lower() in ('y', 'yes')
  except EOFError:
    raise errors.UserError('there is no terminal; give --yes.') from None


def _print_all(world, plan, sha256) -> int:
  """Prints the request, and what the hosts will be told."""
  ledger = Ledger('LAUNCH-123456', sha256=sha256)
  create, path = tick.prepare_request(world, plan, ledger)
  say(f'{shlex.join(create)} --project={world.project}\nwith {path}:')
  with open(path, encoding='utf-8') as file:
    for line in file:
      say(f'  {line.rstrip()}')
  return 0
