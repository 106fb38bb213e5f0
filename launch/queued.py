"""The Cloud TPU API: queued resources, for v2 to v6e."""

import json

from bert_jax.hardware import topology as topology_lib
from launch import commands, resource, slices
from launch import plan as plan_lib

_TPUS = ['gcloud', 'compute', 'tpus']
_QUEUE = [*_TPUS, 'queued-resources']
# Hours after which the API gives up a request that was not met.
_VALID_HOURS = 6
# All others, also those of which no one has heard yet, are left alone as one
# that is provisioning.
_STATES = {
  'ACCEPTED': resource.WAITING,
  'WAITING_FOR_RESOURCES': resource.WAITING,
  'PROVISIONING': resource.PROVISIONING,
  'ACTIVE': resource.ACTIVE,
  'SUSPENDING': resource.PREEMPTED,
  'SUSPENDED': resource.PREEMPTED,
  'FAILED': resource.FAILED,
  'DELETING': resource.DELETING,
}
_NODE_STATES = {
  'CREATING': resource.PROVISIONING,
  'READY': resource.ACTIVE,
  'PREEMPTED': resource.PREEMPTED,
  'TERMINATED': resource.PREEMPTED,
  'STOPPED': resource.PREEMPTED,
  'DELETING': resource.DELETING,
}


def create(
  plan: plan_lib.Plan, zone: str, worker: str, job: str, seconds: float
) -> list[list[str]]:
  """Returns the commands that ask for the slices.

  Args:
    plan: the run.
    zone: where to ask.
    worker: path of the startup script.
    job: path of the text for the hosts.
    seconds: unused; this API has no limit of its own.
  """
  del seconds
  nodes = [f'--node-id={plan.name}']
  if plan.topology.slices > 1:
    nodes = [
      f'--node-prefix={plan.name}',
      f'--node-count={plan.topology.slices}',
    ]
  inside = plan.topology.hosts > slices.MAX_ADDRESSES
  return [
    [
      *(*_QUEUE, 'create', plan.name),
      *nodes,
      f'--zone={zone}',
      f'--accelerator-type={topology_lib.cloud_name(plan.topology)}',
      f'--runtime-version={slices.CHIPS[plan.topology.chip.name].runtime}',
      *(['--spot'] if plan.spot else []),
      *(['--internal-ips'] if inside else []),
      f'--valid-until-duration={_VALID_HOURS}h',
      f'--labels={resource.LABEL}={plan.name}',
      f'--metadata-from-file=startup-script={worker},{resource.JOB}={job}',
      '--scopes=cloud-platform',
      '--async',
      '--quiet',
    ]
  ]


def find(
  run: commands.Execute, name: str | None = None
) -> list[resource.Resource]:
  """Returns the labelled resources of this API, of one run or of all.

  Raises:
    commands.CommandError: if they cannot be listed, so that nothing is known.
  """
  every = ['--zone=-', '--format=json']
  queued = parse_queued(commands.ask(run, [*_QUEUE, 'list', *every]))
  own = [r for r in queued if r.run == name]
  if own:  # its nodes go with it
    return own
  nodes = commands.ask(run, [*_TPUS, 'tpu-vm', 'list', *every])
  found = queued + parse_nodes(nodes, {(r.name, r.place) for r in queued})
  return [r for r in found if name in (None, r.run)]


def delete(found: resource.Resource) -> list[str]:
  """Returns the command that deletes a resource of this API."""
  if found.kind == resource.NODE:
    start, more = [*_TPUS, 'tpu-vm'], []
  else:
    start, more = _QUEUE, ['--force']
  return [
    *(*start, 'delete', found.name, f'--zone={found.place}'),
    *more,
    '--async',
    '--quiet',
  ]


def delete_self(plan: plan_lib.Plan, zone: str) -> list[str]:
  """Returns the command with which a host deletes what it is part of."""
  own = resource.Resource(resource.QUEUED, plan.name, zone, plan.name, '')
  return delete(own)


def parse_queued(text: str) -> list[resource.Resource]:
  """Reads the JSON of `queued-resources list`."""
  found = []
  for item in json.loads(text or '[]'):
    spec = item.get('tpu', {}).get('nodeSpec') or [{}]
    node = spec[0].get('node', {})
    name = node.get('labels', {}).get(resource.LABEL)
    if name is None:
      continue
    state = item.get('state', {})
    error = state.get('failedData', {}).get('error', {}).get('message', '')
    found.append(
      resource.Resource(
        resource.QUEUED,
        resource.last_part(item['name']),
        item['name'].split('/')[3],
        name,
        _STATES.get(state.get('state'), resource.PROVISIONING),
        error,
        node.get('metadata', {}).get(resource.JOB, ''),
      )
    )
  return found


def parse_nodes(text: str, queued: set) -> list[resource.Resource]:
  """Reads the JSON of `tpu-vm list`.

  Args:
    text: the JSON.
    queued: (name, zone) of queued resources, whose nodes are left out.
  """
  found = []
  for item in json.loads(text or '[]'):
    name = item.get('labels', {}).get(resource.LABEL)
    zone = item['name'].split('/')[3]
    owner = resource.last_part(item.get('queuedResource', ''))
    if name is None or (owner, zone) in queued:
      continue
    found.append(
      resource.Resource(
        resource.NODE,
        resource.last_part(item['name']),
        zone,
        name,
        _NODE_STATES.get(item.get('state'), resource.PROVISIONING),
        job=item.get('metadata', {}).get(resource.JOB, ''),
      )
    )
  return found
