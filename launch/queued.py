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

# All others, also those of which no one has heard yet, are left alone as one that
# is provisioning.
_STATES = {
  **{'ACCEPTED': WAITING, 'WAITING_FOR_RESOURCES': WAITING, 'ACTIVE': ACTIVE},
  **{'SUSPENDING': PREEMPTED, 'SUSPENDED': PREEMPTED, 'FAILED': FAILED},
  'DELETING': DELETING,
}
_GCLOUD = ('compute', 'tpus', 'queued-resources')


class Resource(NamedTuple):
  """A queued resource, which its nodes come and go with."""

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
  lines |= {'storage': find_base(world, 'storage').rstrip('/')}
  lines |= {'slices': topology.slices, 'seconds': int(seconds)}
  lines |= {'hosts': topology.hosts // topology.slices, **more}
  words = [f'--config={run.config}', f'--workdir={run.workdir}', *run.overrides]
  pairs = [*lines.items(), *(('argument', text) for text in words)]
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
    *('gcloud', *alpha, *_GCLOUD, 'create', name),
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


def delete(world: World, item: Resource) -> Result:
  """Deletes a resource and its nodes."""
  words = ['delete', item.name, '--force', f'--zone={item.zone}']
  words += ['--async', '--quiet', f'--project={world.project}']
  return world.run(['gcloud', *_GCLOUD, *words])


def find(world: World, zones) -> tuple[list[Resource], dict[str, str]]:
  """Returns (everything with our label, {zone: why it did not answer}).

  It looks in the given zones; '-' is all that the API can list.
  """
  resources, silent = {}, {}
  for zone in zones:
    path = f'v2/projects/{world.project}/locations/{zone}/queuedResources'
    token: str | None = ''
    try:
      while token is not None:
        more = {'pageToken': token} if token else {}
        page = ask(world, 'tpu', path, pageSize=500, **more)
        with reading(path):
          for place in page.get('unreachable', []):
            silent[place.rpartition('/')[2]] = 'the API could not reach it'
          for item in map(_read, page.get('queuedResources', [])):
            resources[item[:2]] = item
          token = page.get('nextPageToken') or None
    except Unknown as error:
      silent[zone] = str(error)
  return [item for item in resources.values() if item.run], silent


def _read(item) -> Resource:
  node = (item.get('tpu', {}).get('nodeSpec') or [{}])[0].get('node', {})
  state = item.get('state') or {}
  message = state.get('failedData', {}).get('error', {}).get('message', '')
  labels, told = node.get('labels', {}), node.get('metadata', {}).get(JOB, '')
  run, launch = labels.get(LABEL, ''), labels.get(LAUNCH, '')
  _, _, _, zone, _, name = item['name'].split('/')
  known = _STATES.get(state.get('state'), PROVISIONING)
  return Resource(name, zone, run, launch, known, message, told)


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
