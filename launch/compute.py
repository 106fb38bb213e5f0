"""Compute Engine: single TPU VMs and groups of them, for v5p, v6e and TPU7x.

A slice of several hosts is a managed instance group with a workload policy that
names its topology, made of a template.
"""

import collections
import json

from launch import commands, resource, slices
from launch import plan as plan_lib

_COMPUTE = ['gcloud', 'compute']
_GROUPS = [*_COMPUTE, 'instance-groups', 'managed']
_IMAGE = (
  '--image-project=ubuntu-os-accelerator-images',
  '--image-family=ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e',
)
_DISK = '200GB'  # the default of 10 GB has no room for data and checkpoints
# The server deletes hosts this much after they should have done so themselves.
_GRACE_SECONDS = 1800
_MIN_SECONDS, _MAX_SECONDS = 30, 120 * 24 * 3600  # of --max-run-duration
_STATES = {
  'PENDING': resource.WAITING,
  'PROVISIONING': resource.WAITING,
  'STAGING': resource.WAITING,
  'RUNNING': resource.ACTIVE,
}


def create(
  plan: plan_lib.Plan, zone: str, worker: str, job: str, seconds: float
) -> list[list[str]]:
  """Returns the commands that ask for the hosts, in order.

  Args:
    plan: the run.
    zone: where to ask.
    worker: path of the startup script.
    job: path of the text for the hosts.
    seconds: time after which the hosts stop by themselves.
  """
  host = _host(plan, worker, job, seconds)
  if plan.topology.hosts == 1:
    argv = [*_COMPUTE, 'instances', 'create', plan.name, f'--zone={zone}']
    return [[*argv, *host]]
  region = find_region(zone)
  home = f'projects/{plan.project}/regions/{region}'
  policy = [*_COMPUTE, 'resource-policies', 'create', 'workload-policy']
  template = [*_COMPUTE, 'instance-templates', 'create', plan.name]
  # The bulk mode asks for all hosts or none. gcloud 528 (2025-06) has it in
  # alpha only.
  group = ['gcloud', 'alpha', *_GROUPS[1:], 'create', plan.name]
  described = f'--description={resource.LABEL}={plan.name}'
  return [
    [
      *(*policy, plan.name, f'--region={region}', '--type=HIGH_THROUGHPUT'),
      f'--accelerator-topology={slices.format_grid(plan.topology)}',
      described,
      '--quiet',
    ],
    [*template, f'--instance-template-region={region}', *host],
    [
      *(*group, f'--zone={zone}', '--size=0'),
      f'--template={home}/instanceTemplates/{plan.name}',
      f'--workload-policy={home}/resourcePolicies/{plan.name}',
      '--target-size-policy-mode=bulk',
      '--default-action-on-vm-failure=do-nothing',
      described,
      '--quiet',
    ],
    [
      *(*_GROUPS, 'resize', plan.name, f'--zone={zone}'),
      f'--size={plan.topology.hosts}',
      '--quiet',
    ],
  ]


def _host(plan, worker, job, seconds) -> list[str]:
  """Returns the arguments that describe one host."""
  topology = plan.topology
  machines = slices.CHIPS[topology.chip.name].machines
  longest = int(min(max(seconds + _GRACE_SECONDS, _MIN_SECONDS), _MAX_SECONDS))
  inside = topology.hosts > slices.MAX_ADDRESSES
  return [
    f'--machine-type={machines[slices.chips_per_host(topology)]}',
    *_IMAGE,
    f'--boot-disk-size={_DISK}',
    '--maintenance-policy=TERMINATE',
    f'--provisioning-model={"SPOT" if plan.spot else "STANDARD"}',
    f'--max-run-duration={longest}s',
    '--instance-termination-action=DELETE',
    *(['--no-address'] if inside else []),
    f'--labels={resource.LABEL}={plan.name}',
    f'--metadata-from-file=startup-script={worker},{resource.JOB}={job}',
    '--scopes=cloud-platform',
    '--quiet',
  ]


def find_region(zone: str) -> str:
  """Returns the region of a zone."""
  return zone.rpartition('-')[0]


def find(
  run: commands.Execute, name: str | None = None
) -> list[resource.Resource]:
  """Returns the labelled resources of this API, of one run or of all.

  Raises:
    commands.CommandError: if they cannot be listed, so that nothing is known.
  """

  def listing(*words):
    return commands.ask(run, [*_COMPUTE, *words, 'list', '--format=json'])

  groups = parse_groups(listing('instance-groups', 'managed'))
  instances = parse_instances(listing('instances'))
  groups = [find_state(run, group, instances) for group in groups]
  owned = {(group.run, group.place) for group in groups}
  # Hosts of a group go with it.
  hosts = [r for r in instances if (r.run, r.place) not in owned]
  own = [r for r in groups + hosts if r.run == name]
  if own:  # what they were made of is deleted after them
    return own
  found = [
    *(groups + hosts),
    *parse_templates(listing('instance-templates')),
    *parse_policies(listing('resource-policies')),
  ]
  return [r for r in found if name in (None, r.run)]


def delete(found: resource.Resource) -> list[str]:
  """Returns the command that deletes a resource of this API."""
  words = {
    resource.INSTANCE: [*_COMPUTE, 'instances'],
    resource.GROUP: _GROUPS,
    resource.TEMPLATE: [*_COMPUTE, 'instance-templates'],
    resource.POLICY: [*_COMPUTE, 'resource-policies'],
  }[found.kind]
  hosts = found.kind in (resource.INSTANCE, resource.GROUP)
  place = f'--{"zone" if hosts else "region"}={found.place}'
  return [*words, 'delete', found.name, place, '--quiet']


def delete_self(plan: plan_lib.Plan, zone: str) -> list[str]:
  """Returns the command with which a host deletes what it is part of."""
  alone = plan.topology.hosts == 1
  kind = resource.INSTANCE if alone else resource.GROUP
  return delete(resource.Resource(kind, plan.name, zone, plan.name, ''))


def parse_instances(text: str) -> list[resource.Resource]:
  """Reads the JSON of `instances list`."""
  found = []
  for item in json.loads(text or '[]'):
    name = item.get('labels', {}).get(resource.LABEL)
    if name is None:
      continue
    items = item.get('metadata', {}).get('items', [])
    jobs = [x.get('value', '') for x in items if x['key'] == resource.JOB]
    state = _STATES.get(item.get('status'), resource.PREEMPTED)
    found.append(
      resource.Resource(
        resource.INSTANCE,
        item['name'],
        resource.last_part(item['zone']),
        name,
        state,
        job=''.join(jobs),
      )
    )
  return found


def parse_groups(text: str) -> list[resource.Resource]:
  """Reads the JSON of `instance-groups managed list`; all are waiting."""
  found = []
  for item in json.loads(text or '[]'):
    name = resource.described_run(item.get('description'))
    if name is None or 'zone' not in item:
      continue
    found.append(
      resource.Resource(
        resource.GROUP,
        item['name'],
        resource.last_part(item['zone']),
        name,
        resource.WAITING,
        size=int(item.get('targetSize', 0)),
      )
    )
  return found


def find_state(
  run: commands.Execute,
  group: resource.Resource,
  instances: list[resource.Resource],
) -> resource.Resource:
  """Returns a group with the state that its hosts give it."""
  hosts = [r for r in instances if (r.run, r.place) == (group.run, group.place)]
  states = collections.Counter(r.state for r in hosts)
  message = ''
  if states[resource.PREEMPTED]:
    state = resource.PREEMPTED
  elif group.size and states[resource.ACTIVE] >= group.size:
    state = resource.ACTIVE
  else:
    argv = [*_GROUPS, 'list-errors', group.name, f'--zone={group.place}']
    text = commands.ask(run, [*argv, '--format=json'])
    message = parse_errors(text)
    if not group.size:
      message = message or 'its hosts were never asked for'
    state = resource.FAILED if message else resource.WAITING
  job = hosts[0].job if hosts else ''
  return resource.Resource(
    *(group.kind, group.name, group.place, group.run, state, message, job),
    group.size,
  )


def parse_errors(text: str) -> str:
  """Reads the JSON of `list-errors`; returns '' if there is none."""
  errors = [item.get('error', {}) for item in json.loads(text or '[]')]
  return '; '.join(
    f'{error.get("code", "")}: {error.get("message", "")}' for error in errors
  )[:600]


def parse_templates(text: str) -> list[resource.Resource]:
  """Reads the JSON of `instance-templates list`."""
  found = []
  for item in json.loads(text or '[]'):
    labels = item.get('properties', {}).get('labels', {})
    if resource.LABEL in labels and 'region' in item:
      found.append(_idle(resource.TEMPLATE, item, labels[resource.LABEL]))
  return found


def parse_policies(text: str) -> list[resource.Resource]:
  """Reads the JSON of `resource-policies list`."""
  found = []
  for item in json.loads(text or '[]'):
    name = resource.described_run(item.get('description'))
    if name is not None:
      found.append(_idle(resource.POLICY, item, name))
  return found


def _idle(kind, item, name):
  place = resource.last_part(item['region'])
  return resource.Resource(kind, item['name'], place, name, resource.IDLE)
