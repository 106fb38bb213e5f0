"""Queued resources of the Cloud TPU API: requests, lists and deletions."""

import os
import re
import sys
from typing import NamedTuple

from bert_jax.hardware import accelerators
from launch.plan import CHIPS, Plan
from launch.world import Result, Unknown, World, reading

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'worker.sh')
# Labels of everything that the launcher creates, and touches.
LABEL, LAUNCH = 'bert-jax-run', 'bert-jax-launch'
JOB = 'bert-jax-job'  # metadata of hosts: what to do
VALID_HOURS = 6  # until the API gives up a request that was not met
_GRACE = 1800  # seconds from our limit to the server's

# States, by what they cost: active; got its chips and boots; deleting; in a queue,
# free of charge; taken away, or stopped; failed.
ORDER = 'active', 'provisioning', 'deleting', 'waiting', 'preempted', 'failed'
ACTIVE, PROVISIONING, DELETING, WAITING, PREEMPTED, FAILED = ORDER
FIXED = (PROVISIONING, DELETING)  # cannot be deleted
# All others, also those of which no one has heard yet, are left alone as one that
# is provisioning.
_STATES = {state.upper(): state for state in (ACTIVE, DELETING, FAILED)}
_STATES |= dict.fromkeys(('ACCEPTED', 'WAITING_FOR_RESOURCES'), WAITING)
_STATES |= dict.fromkeys(('SUSPENDING', 'SUSPENDED'), PREEMPTED)
_GCLOUD = ('compute', 'tpus', 'queued-resources')


# {pattern: what helps}. These name what is wrong, so the whole message counts.
_USER = "give yourself roles/iam.serviceAccountUser on the hosts' account"
_AGENT = 'gcloud beta services identity create --service=tpu.googleapis.com'
_WRONG = {
  r'vmexternalipaccess': 'give --gcloud_arg=--internal-ips, with Cloud NAT',
  r'constraints/|org(anization)?.?policy|violates constraint': 'ask who set it',
  r'iam\.serviceaccounts\.actas|serviceaccountuser': _USER,
  r'service-\d+@|service agent': _AGENT,
}
# {pattern: whether it is one of these}, searched for without names. The first that
# is found decides, so the order matters: a number of requests per minute is also
# a quota, and so is a quota of zero; a refusal may contain a number such as 503.
_KINDS = {
  r'per (minute|second)|ratelimitexceeded|already exists': False,
  r'limit:? 0(\.0+)?\b(?!\.\d)': True,
  r'no more capacity|stockout|resource_pool_exhausted|valid.?until': False,
  r'(not |in)(have |)(enough|sufficient) (capacity|resources)': False,
  r'quota[ _](limit )?(\S+ )?(has been )?(exceeded|exhausted)': False,
  r'permission to submit requests for accelerator type': False,
  r'(machine|accelerator|zone|location).{0,80}not (found|exist)': False,
  r'billing|permission.denied|forbidden|\b403\b|unauthenticated': True,
  r'has not been used in project|service_disabled|not enabled': True,
  r'credential|reauthent|active account|no such file|was not found': True,
  r'invalid.argument|invalid value|bad request|\b400\b|unrecognized arg': True,
}
# Paths and what has a hyphen: names of runs, buckets and zones, which may
# contain any of the words and numbers above.
_NAME = re.compile(r'[\w.:]*[/-][\w.:/-]*')


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
  """Returns what hosts are told: lines of key=value that worker.sh reads."""
  bucket, _, folder = run.workdir.removeprefix('gs://').partition('/')
  lines = {'name': run.name, 'launch': launch, 'workdir': run.workdir}
  lines |= {'bucket': bucket, 'folder': folder, 'topology': topology.name}
  lines |= {'storage': world.find_base('storage').rstrip('/')}
  lines |= {'slices': topology.slices, 'seconds': int(seconds)}
  lines |= {'hosts': topology.hosts // topology.slices, **more}
  words = [f'--config={run.config}', f'--workdir={run.workdir}', *run.overrides]
  pairs = [*lines.items(), *(('argument', text) for text in words)]
  return ''.join(f'{key}={value}\n' for key, value in pairs)


def prepare(
  world: World, plan: Plan, ledger, path: str
) -> tuple[list[str], str]:
  """Returns (the command that asks for hosts, their job, to be at a path)."""
  zone, seconds = plan.zones[ledger.zone], plan.hours * 3600 - ledger.seconds
  # Two launches never share a name.
  name = f'{plan.name}-{ledger.job.rpartition("-")[2]}'
  place = f'v2/projects/{plan.project}/locations/{zone}/queuedResources/{name}'
  job = render_job(
    *(world, plan, ledger.job, plan.topology, seconds),
    attempt=str(ledger.attempts),
    archive=f'launch/code-{ledger.sha256}.tar.gz',
    sha256=ledger.sha256,
    python='{}.{}'.format(*sys.version_info),
    delete=f'{world.find_base("tpu")}{place}?force=true',
  )
  several = [f'--node-prefix={name}', f'--node-count={plan.slices}']
  # The only limit on the server; gcloud 528 (2025-06) has it in alpha only.
  limit = f'--max-run-duration={int(seconds) + _GRACE}s'
  flex = ['--provisioning-model=FLEX_START', limit]
  models = {'spot': ['--spot'], 'flex_start': flex}
  argv = [
    *('gcloud', *['alpha'] * (plan.model == 'flex_start'), *_GCLOUD),
    *('create', name, f'--project={plan.project}', f'--zone={zone}'),
    *(several if plan.slices > 1 else [f'--node-id={name}']),
    f'--accelerator-type={accelerators.cloud_name(plan.topology)}',
    f'--runtime-version={CHIPS[plan.topology.chip.name][0]}',
    *models.get(plan.model, []),
    *plan.more,
    *([f'--service-account={plan.account}'] if plan.account else []),
    f'--valid-until-duration={VALID_HOURS}h',
    f'--labels={LABEL}={plan.name},{LAUNCH}={ledger.job}',
    # Entries are separated by |, since paths may have commas.
    f'--metadata-from-file=^|^startup-script={WORKER}|{JOB}={path}',
    *('--scopes=cloud-platform', '--async', '--quiet'),
  ]
  return argv, job


def delete(world: World, item: Resource) -> Result:
  """Deletes a resource and its nodes."""
  words = ['delete', item.name, '--force', f'--zone={item.zone}']
  words += ['--async', '--quiet', f'--project={world.project}']
  return world.run(['gcloud', *_GCLOUD, *words])


def find(world: World) -> tuple[list[Resource], dict[str, str]]:
  """Returns (everything with our label, {zone: why it did not answer}).

  If nothing answered, that is zone '-'.
  """
  resources, silent, more = {}, {}, {}
  path = f'v2/projects/{world.project}/locations/-/queuedResources'
  try:
    while more is not None:
      page = world.ask('tpu', path, pageSize=500, **more)
      with reading(path):
        for place in page.get('unreachable', []):
          silent[place.rpartition('/')[2]] = 'the API could not reach it'
        for item in map(_read, page.get('queuedResources', [])):
          resources[item[:2]] = item
        token = page.get('nextPageToken')
        more = {'pageToken': token} if token else None
  except Unknown as error:
    silent['-'] = str(error)
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


def find_structural(message: str) -> str | None:
  """Returns a refusal with what helps, if the same request cannot succeed.

  All others may pass, also those of which nobody has heard.
  """
  for pattern, advice in _WRONG.items():
    if re.search(pattern, message.lower()):
      return f'{message} -- {advice}'
  text = _NAME.sub('NAME', message).lower()
  kinds = [kind for pattern, kind in _KINDS.items() if re.search(pattern, text)]
  return message if kinds[:1] == [True] else None
