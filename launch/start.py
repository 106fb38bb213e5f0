"""`launch/tpu.py run`: everything before money, then the watch over the run."""

import argparse
import dataclasses
import os
import subprocess
import sys

from bert_jax import errors
from launch import (
  archive,
  bucket,
  commands,
  control,
  estimate,
  failures,
  ledger_file,
  records,
  resource,
  supervisor,
  terminal,
  watch,
)
from launch import job as job_lib
from launch import plan as plan_lib
from launch import project as project_lib
from launch.world import World

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def run(given: argparse.Namespace, world: World) -> int:
  """Starts a run or goes on watching it; returns the exit code.

  Args:
    given: the arguments of `launch/tpu.py run`.
    world: acts on the world.
  """
  commands.say(
    f'to end everything: python launch/tpu.py down {given.name} '
    f'--workdir={given.workdir}'
  )
  project = project_lib.find_chosen(world, given.dry_run)
  world = dataclasses.replace(world, run=project_lib.enter(world.run, project))
  plan = plan_lib.make(given, project)
  config = archive.check_config(ROOT, plan.config)
  checked = estimate.check_config(world.run, plan.config, plan.overrides)
  plan = dataclasses.replace(plan, config=config)
  packed, sha256 = archive.make(ROOT)
  for line in plan_lib.describe(
    plan, estimate.describe_price_source(given.price)
  ):
    commands.say(line)
  for line in estimate.describe_network(plan):
    commands.say(line)
  if given.dry_run:
    return _print_all(given, world, plan, packed, sha256)
  found = _find(world, plan)
  ledger, generation = ledger_file.open_launch(world, plan, found, sha256)
  if not ledger.attempts and not found:
    bucket.check_writable(world.run, plan.workdir)
    ledger = _estimate(given, world, plan, ledger, checked)
    if not given.yes and not _ask(plan):
      commands.say('nothing was rented.')
      return 1
    upload(world, plan, packed, sha256)
    # Noted before the watch, so that a detached one finds this launch.
    generation = ledger_file.save(world, plan, ledger, generation)
  else:
    commands.say(f'going on with launch {ledger.job}: nothing is asked again')
    if not found:  # hosts that live go on with the code that they have
      ledger = dataclasses.replace(ledger, sha256=sha256)
    if ledger.sha256 == sha256:
      upload(world, plan, packed, sha256)
  records.write(plan)
  if given.detach:
    return _detach(given, project)
  limits = supervisor.Limits(plan.zones, plan.hours * 3600)
  return _watch(world, plan, limits, ledger, generation)


def _find(world, plan) -> list[resource.Resource]:
  """Returns what is there of the run.

  Raises:
    errors.UserError: if it was made by another API.
    commands.CommandError: if that is not known.
  """
  found, unknown = control.look(world, plan.name)
  for api, error in unknown.items():
    if api == plan.api or failures.is_transient(str(error)):
      raise error
    # The user may have no rights to an API that the run does not need.
    commands.warn(f'{api} could not be asked for hosts of {plan.name}: {error}')
  for api, item in found:
    if api != plan.api:
      raise errors.UserError(
        f'{plan.name} has a {item.kind} of --api={api}; give that, or end it '
        f'first: python launch/tpu.py down {plan.name}'
      )
  return [item for _, item in found]


def _estimate(given, world, plan, ledger, checked) -> supervisor.Ledger:
  """Shows what the run will need; keeps the estimate for the bill."""
  report = None
  if not given.no_preflight:
    commands.say('preflight: compiling the run for these chips ...')
    report = estimate.run_preflight(
      world.run, plan, given.config, records.folder(), ledger.sha256
    )
  every = checked.get('checkpoint_every')
  for line in estimate.describe(plan, report, every):
    commands.say(line)
  estimated = report and report['run_estimate']
  return dataclasses.replace(ledger, estimate=estimated)


def _ask(plan) -> bool:
  price = ''
  if plan.usd_per_hour is not None:
    price = f' for ${plan.usd_per_hour:,.2f} an hour, at most '
    price += f'${plan.usd_per_hour * plan.hours:,.2f}'
  try:
    return input(f'rent this{price}? [y/N] ').strip().lower() in ('y', 'yes')
  except EOFError:
    raise errors.UserError(
      'there is no terminal to ask on; give --yes.'
    ) from None


def upload(world: World, plan: plan_lib.Plan, packed: bytes, sha256: str):
  """Writes the archive of the code to the bucket."""
  path = os.path.join(records.folder(), f'code-{sha256}.tar.gz')
  with open(path, 'wb') as file:
    file.write(packed)
  url = job_lib.archive_url(plan.workdir, sha256)
  commands.ask(world.run, ['gcloud', 'storage', 'cp', path, url, '--quiet'])
  os.remove(path)


def _print_all(given, world, plan, packed, sha256) -> int:
  """Prints the commands of a launch in their order."""
  bucket.check_writable(world.run, plan.workdir)
  if not given.no_preflight:
    estimate.run_preflight(
      world.run, plan, given.config, records.folder(), sha256
    )
  upload(world, plan, packed, sha256)
  _find(world, plan)
  ledger = supervisor.Ledger('JOB', 0.0, 0.0, sha256=sha256)
  folder = records.folder()
  watch.act(world, plan, ledger, supervisor.CREATE, [], folder)
  path = os.path.join(folder, f'{plan.name}.job')
  with open(path, encoding='utf-8') as file:
    commands.say(f'with {path}:')
    for line in file.read().splitlines():
      commands.say(f'  {line}')
  commands.say('and, when the run has ended:')
  kind = resource.QUEUED
  if plan.api == 'compute':
    kind = resource.INSTANCE if plan.topology.hosts == 1 else resource.GROUP
  for zone in plan.zones[:1]:
    own = resource.Resource(kind, plan.name, zone, plan.name, '')
    watch.act(world, plan, ledger, supervisor.DELETE, [own], folder)
  return 0


def _detach(given, project) -> int:
  """Starts the watch in the background."""
  path = os.path.join(records.folder(), f'{given.name}.log')
  argv = [word for word in sys.argv if word != '--detach']
  with open(path, 'ab') as log:
    process = subprocess.Popen(
      [sys.executable, *argv, '--yes'],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
      env={**os.environ, 'CLOUDSDK_CORE_PROJECT': project},
    )
  commands.say(
    f'process {process.pid} watches the run and writes to {path}. While it and '
    'this machine run, lost hosts are replaced; the hosts delete themselves '
    'without it, too. The same command without --detach takes over.'
  )
  return 0


def _watch(world, plan, limits, ledger, generation) -> int:
  try:
    ledger = watch.watch(
      world, plan, limits, ledger, generation, records.folder()
    )
  except KeyboardInterrupt:
    commands.say(
      '\nno longer watching. The hosts KEEP RUNNING AND COSTING. The same '
      f'command goes on watching; "python launch/tpu.py down {plan.name}" ends '
      'them.'
    )
    return 130
  for line in terminal.list_bill(plan, ledger):
    commands.say(line)
  return 0 if ledger.reason == supervisor.DONE else 1
