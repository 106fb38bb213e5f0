"""Queued resources of the Cloud TPU API: requests, lists and deletions."""

import re
from typing import NamedTuple

from bert_jax.hardware import accelerators
from launch import chips
from launch.plan import Plan
from launch.world import Result, Unknown, World, ask, find_base, reading, warn

# Labels of everything that the launcher creates, and touches.
LABEL, LAUNCH = 'bert-jax-run', 'bert-jax-launch'
JOB = 'bert-jax-job'  # metadata of hosts: what to do
VALID_HOURS = 6  # until the API gives up a request that was not met
_GRACE = 1800  # seconds from our limit to the server's

# States.
WAITING = 'waiting'  # in a queue; free of charge
PROVISIONING = 'provisioning'  # got its chips, boots; cannot be deleted
ACTIVE = 'active'  # costs money
PREEMPTED = 'preempted'  # was taken away, or stopped
FAILED = 'failed'
DELETING = 'deleting'
FIXED = (PROVISIONING, DELETING)  # cannot be deleted

# Of queued resources, then of nodes. All others, also those of which no one has
# heard yet, are left alone as one that is provisioning.
_STATES = {
  **{'ACCEPTED': WAITING, 'WAITING_FOR_RESOURCES': WAITING, 'ACTIVE': ACTIVE},
  **{'SUSPENDING': PREEMPTED, 'SUSPENDED': PREEMPTED, 'FAILED': FAILED},
  **{'DELETING': DELETING, 'READY': ACTIVE, 'PREEMPTED': PREEMPTED},
  **{'TERMINATED': PREEMPTED, 'STOPPED': PREEMPTED},
}
_TPUS = ('compute', 'tpus')
_QUEUES, _NODES = 'queuedResources', 'nodes'


class Resource(NamedTuple):
  """A queued resource, or a node that has none."""

  kind: str  # _QUEUES or _NODES
  name: str
  zone: str
  run: str  # the run's name, from the label
  launch: str  # from the label
  state: str
  message: str = ''  # why it failed
  job: str = ''  # what its hosts are told, see `render_job`

  def read(self, key: str) -> str | None:
    """Returns a value of the job."""
    found = re.search(rf'^{key}=(.*)$', self.job, re.MULTILINE)
    return found and found[1]


def render_job(world: World, run, launch, topology, seconds, **more) -> str:
  """Returns what hosts are told: lines of key=value that worker.sh reads.

  `run` has a name, workdir, config and overrides; after some seconds, the hosts
  stop.
  """
  bucket, _, folder = run.workdir.removeprefix('gs://').partition('/')
  lines = {'name': run.name, 'launch': launch, 'workdir': run.workdir}
  lines |= {'bucket': bucket, 'folder': folder, 'topology': topology.name}
  lines['storage'] = find_base(world, 'storage').rstrip('/')
  lines['slices'] = topology.slices
  lines['hosts'] = topology.hosts // topology.slices
  words = [f'--config={run.config}', f'--workdir={run.workdir}', *run.overrides]
  pairs = [*(lines | more).items(), ('seconds', int(seconds))]
  pairs += [('argument', text) for text in words]
  return ''.join(f'{key}={value}\n' for key, value in pairs)


def name_resource(plan: Plan, launch: str) -> str:
  """Returns the name of a launch's resource: two launches never share one."""
  return f'{plan.name}-{launch.rpartition("-")[2]}'


def create(plan, launch: str, zone: str, files, seconds: float) -> list[str]:
  """Returns the command that asks for the slices in a zone.

  `files` are paths of the startup script and of the job; after `seconds`, the
  hosts stop by themselves.
  """
  name, slices = name_resource(plan, launch), plan.topology.slices
  several = [f'--node-prefix={name}', f'--node-count={slices}']
  # The only limit on the server that this API has; gcloud 528 (2025-06) has
  # flex-start in alpha only.
  limit = f'--max-run-duration={int(seconds) + _GRACE}s'
  flex = ['--provisioning-model=FLEX_START', limit]
  models = {'spot': ['--spot'], 'reserved': ['--reserved'], 'flex_start': flex}
  alpha = ['alpha'] if plan.model == 'flex_start' else []
  return [
    *('gcloud', *alpha, *_TPUS, 'queued-resources', 'create', name),
    *(several if slices > 1 else [f'--node-id={name}']),
    f'--zone={zone}',
    f'--accelerator-type={accelerators.cloud_name(plan.topology)}',
    f'--runtime-version={chips.CHIPS[plan.topology.chip.name].runtime}',
    *models.get(plan.model, []),
    *plan.network,
    *([f'--service-account={plan.account}'] if plan.account else []),
    f'--valid-until-duration={VALID_HOURS}h',
    f'--labels={LABEL}={plan.name},{LAUNCH}={launch}',
    # Entries are separated by |, since paths may have commas.
    f'--metadata-from-file=^|^startup-script={files[0]}|{JOB}={files[1]}',
    *('--scopes=cloud-platform', '--async', '--quiet'),
  ]


def delete(world: World, found: Resource) -> Result:
  """Deletes a resource."""
  words = ['queued-resources', 'delete', found.name, '--force']
  if found.kind == _NODES:
    words = ['tpu-vm', 'delete', found.name]
  argv = ['gcloud', *_TPUS, *words, f'--zone={found.zone}', '--async']
  return world.run([*argv, '--quiet', f'--project={world.project}'])


def find(world: World, zones) -> tuple[list[Resource], dict[str, str]]:
  """Returns (everything with our label, {zone: why it did not answer}).

  It looks in the given zones; '-' is all that the API can list.
  """
  found, silent = {}, {}
  for zone in dict.fromkeys(zones):
    try:
      queues = [*_list(world, zone, _QUEUES, silent)]
      nodes = [*_list(world, zone, _NODES, silent)]
    except Unknown as error:
      silent[zone] = str(error)
      continue
    owners = {(item.name, item.zone) for item, _ in queues}
    for item, owner in queues + nodes:
      # A node goes with the queued resource that it belongs to.
      if item.run and (owner, item.zone) not in owners:
        found[item[:3]] = item
  return [*found.values()], silent


def _list(world, zone, kind, silent):
  """Yields (resource, name of the queued resource that it belongs to)."""
  path, more = f'v2/projects/{world.project}/locations/{zone}/{kind}', {}
  while more is not None:
    page = ask(world, 'tpu', path, pageSize=500, **more)
    with reading(f'{kind} in {zone}'):
      for place in page.get('unreachable', []):
        silent[place.rpartition('/')[2]] = 'the API could not reach this zone'
      found = [
        (_read(kind, x), x.get('queuedResource', ''))
        for x in page.get(kind, [])
      ]
    yield from ((item, owner.rpartition('/')[2]) for item, owner in found)
    token = page.get('nextPageToken')
    more = {'pageToken': token} if token else None


def _read(kind, item) -> Resource:
  state, message, node = item.get('state'), '', item
  if kind == _QUEUES:
    state = state or {}
    node = (item.get('tpu', {}).get('nodeSpec') or [{}])[0].get('node', {})
    message = state.get('failedData', {}).get('error', {}).get('message', '')
    state = state.get('state')
  labels, told = node.get('labels', {}), node.get('metadata', {}).get(JOB, '')
  run, launch = labels.get(LABEL, ''), labels.get(LAUNCH, '')
  _, _, _, zone, _, name = item['name'].split('/')
  state = _STATES.get(state, PROVISIONING)
  return Resource(kind, name, zone, run, launch, state, message, told)


def list_zones(world: World) -> set[str]:
  """Returns the zones that the API has, and '-'; none if it does not answer."""
  path = f'v2/projects/{world.project}/locations'
  try:
    page = ask(world, 'tpu', path, pageSize=500)
    with reading(path):
      return {'-', *(item['locationId'] for item in page['locations'])}
  except Unknown:
    return set()


def check_zones(world: World, plan: Plan) -> list[str]:
  """Returns the zones of a plan that offer its chips; warns of the others."""
  kind, offered = accelerators.cloud_name(plan.topology), []
  for zone in plan.zones:
    place = f'v2/projects/{world.project}/locations/{zone}'
    try:
      ask(world, 'tpu', f'{place}/acceleratorTypes/{kind}')
      offered.append(zone)
    except Unknown as error:
      warn(f'{zone} does not offer {kind} to this project: {error}')
  if not offered:
    raise Unknown(f'no zone of {",".join(plan.zones)} offers {kind}')
  return offered
