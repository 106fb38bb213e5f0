"""`launch/tpu.py run`: all checks before money is spent, then the watch."""

import argparse
import re
import secrets
import shlex
import sys
import time

from bert_jax import errors
from bert_jax.hardware.chips import PRICES_AS_OF
from launch import archive, queued, tick
from launch.plan import Plan, make_plan
from launch.supervisor import Ledger
from launch.world import Unknown, World, say, shorten, warn

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
  down = f'python launch/tpu.py down {plan.workdir}'
  say(f'to end everything: {down}')
  if given.dry_run:  # needs no login
    world.project = 'PROJECT'
  world.choose_project()
  plan.project = world.project
  config = archive.check_config(plan.config)
  check_config(world, plan.config, plan.overrides)
  plan.config = config
  packed, sha256 = archive.make()
  say(_describe(plan))
  if given.dry_run:
    ledger = Ledger('LAUNCH-123456', sha256=sha256)
    argv, job = queued.prepare(world, plan, ledger, 'JOB')
    say(f'{shlex.join(argv)}\nwith JOB:\n{job}')
    return 0
  resources, silent = queued.find(world)
  # Others may be down for days without being of interest.
  for zone in {'-', *plan.zones} & {*silent}:
    raise Unknown(f'{zone}: {silent[zone]}')
  ledger, generation = open_launch(world, plan, resources, sha256)
  if ledger.attempts:
    say(f'going on with launch {ledger.job}: nothing is asked')
  else:
    check_access(world, plan)
    if not given.no_preflight:
      run_preflight(world, plan, given.config)
    if not given.yes and not _ask(plan):
      say('nothing was rented.')
      return 1
  if ledger.sha256 == sha256:
    world.write(f'{plan.workdir}/launch/code-{sha256}.tar.gz', packed)
  tick.save(world, plan.workdir, ledger, generation)
  try:
    return tick.watch(world, plan.workdir)
  except KeyboardInterrupt:
    say('\nno longer watching. The hosts KEEP RUNNING AND COSTING. The same')
    say(f'command, or "tick {plan.workdir}", goes on; "{down}" ends them.')
    return 130


def open_launch(
  world: World, plan: Plan, resources: list[queued.Resource], sha256: str
) -> tuple[Ledger, str]:
  """Continues the launch that is under way, or begins one with the code sha256.

  Returns (the ledger, the generation of its object).
  """
  ledger, stored = tick.load(world, plan.workdir)
  if not ledger.job:
    _recover(world, plan, ledger)
  live = [item.zone for item in resources if item.launch == ledger.job]
  end = f'{plan.workdir}/launch/{ledger.job}/end'
  ended = ledger.reason or not ledger.job or world.read(end).text is not None
  if ended and not live:
    now = stored.now
    day = time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))
    ledger = Ledger(f'{day}-{secrets.token_hex(3)}', time=now, since=now)
  for item in resources:
    mine = item.run == plan.name or item.read('workdir') == plan.workdir
    if mine and item.launch != ledger.job:
      raise errors.UserError(
        f'{item.name} of {item.read("workdir")} is {item.state}, and of another '
        'launch: take other names for this one, wait until that has ended, or '
        f'end it: python launch/tpu.py down {item.name}'
      )
  known = Plan(**ledger.plan or vars(plan))
  for key in ('name', 'project', 'slice', 'slices'):
    if (old := getattr(known, key)) != getattr(plan, key):
      raise errors.UserError(
        f'--workdir={plan.workdir} is in use by a launch with {key} {old}: give '
        f'that, or end it: python launch/tpu.py stop {plan.workdir}'
      )
  # Where hosts are or may come from is watched, asked for or not.
  ledger.unsettled = sorted({*ledger.unsettled, *live})
  plan.zones = [*dict.fromkeys([*plan.zones, *ledger.unsettled])]
  ledger.zone %= len(plan.zones)
  ledger.sha256 = live and ledger.sha256 or sha256
  ledger.plan = vars(plan)
  return ledger, stored.generation


def _recover(world, plan, ledger):
  """Fills in what a lost ledger knew of the newest launch.

  Hosts write when their time is up; what the limit allows beyond that was spent.
  """
  told = world.list_folder(f'{plan.workdir}/launch')
  told = [(at, url) for url, _, at in told if re.search(r'/deadline-\d+$', url)]
  if told:
    last, url = max(told)
    logs = world.list_folder(f'{plan.workdir}/logs')
    last = max([last, *(at for _, _, at in logs)])
    limit, text = plan.hours * 3600, world.read(url).text or ''
    left = int(text) - last if re.fullmatch(r'\d{1,12}\n?', text) else 0
    place, _, number = url.rpartition('/deadline-')
    ledger.job, ledger.attempts = place.rpartition('/')[2], int(number[:9])
    ledger.seconds, ledger.time = min(max(0.0, limit - left), limit), last
    warn(f'{ledger.seconds / 3600:,.2f} hours of {ledger.job} were paid.')


def check_config(world: World, config: str, overrides):
  """Refuses a config that a run would refuse."""
  argv = [sys.executable, '-c', _CHECK, f'--config={config}', *overrides]
  if (result := world.run(argv)).code:
    raise errors.UserError(shorten(result.err).removeprefix('error: '))


def check_access(world: World, plan: Plan):
  """Checks that the launcher and the hosts' service account have their rights.

  A missing one is a `UserError`; what cannot be known is a warning.
  """
  name, account = plan.workdir.split('/')[2], plan.account
  try:
    world.write(f'{plan.workdir}/launch/write_check', b'written\n')
  except Unknown as error:
    raise errors.UserError(
      f'{error}. Make the bucket with "gcloud storage buckets create gs://{name} '
      '--location=REGION" near the TPUs, or give one that you may write to.'
    ) from error
  bucket = f'storage.googleapis.com/projects/_/buckets/{name}'
  project = f'cloudresourcemanager.googleapis.com/projects/{plan.project}'
  # Hosts that cannot write cannot say so, and those that cannot delete cost until
  # somebody does. Orbax asks for the kind of the bucket.
  rights = {'storage.objects.create': bucket, 'storage.buckets.get': bucket}
  rights |= {f'tpu.{x}.delete': project for x in ('queuedResources', 'nodes')}
  try:
    if not account:
      path = f'v1/projects/{plan.project}'
      number = world.ask('cloudresourcemanager', path)['projectNumber']
      account = f'{number}-compute@developer.gserviceaccount.com'
    for right, place in rights.items():
      access = {'principal': account, 'permission': right}
      data = {'accessTuple': access | {'fullResourceName': f'//{place}'}}
      told = world.ask('policytroubleshooter', 'v3/iam:troubleshoot', data)
      state = told['overallAccessState']
      if state == 'CANNOT_ACCESS':
        raise errors.UserError(
          f'{account} lacks the right {right} to {place}: see step 3 of '
          'docs/launch.md; a new binding takes minutes.'
        )
      if state != 'CAN_ACCESS':
        raise Unknown(f'{account} may lack {right}')
  except (Unknown, KeyError) as error:
    warn(f'the rights of the hosts could not be checked: {error}')


def run_preflight(world: World, plan: Plan, config: str):
  """Shows preflight's page on a run; --config is of the current directory."""
  say('preflight: compiling the run for these chips ...')
  argv = [sys.executable, '-m', 'bert_jax.preflight', f'--config={config}']
  argv += [*plan.overrides, '--quick', f'--slices={plan.slices}']
  argv += [f'--topology={plan.slice}']
  argv += [f'--price={plan.price}'] if plan.price else []
  result = world.run(argv, seconds=_LONG)
  say(result.out)
  if result.code:
    why = shorten(result.err) if result.code != 2 else 'the run does not fit'
    raise errors.UserError(f'preflight: {why}')


def _describe(plan) -> str:
  """Returns what is to be rented, and at which price."""
  topology, costs = plan.topology, 'not known; give --price=USD a chip and hour'
  if plan.price:
    costs = (
      f'${plan.price:.2f}{plan.price_of(1, " = ")} an hour, by --price or a '
    )
    costs += f'list of {PRICES_AS_OF}, on demand'
  limit = f'{plan.hours:,.1f} hours of rent{plan.price_of(plan.hours)}'
  return f"""run       {plan.name}: {plan.config} {' '.join(plan.overrides)}
machines  {topology.name} on {topology.hosts:,} host(s) in {plan.slices} slice(s)
          {plan.model}, in {' or '.join(plan.zones)}
price     {topology.chips:,} chips x {costs}
limit     {limit}; then the run is stopped, and can go on later"""


def _ask(plan) -> bool:
  if not sys.stdin.isatty():
    raise errors.UserError('there is no terminal; give --yes.')
  price = plan.price_of(plan.hours, ' for at most ')
  try:
    return input(f'rent this{price}? [y/N] ').strip().lower() in ('y', 'yes')
  except EOFError:  # Ctrl-D
    return False
