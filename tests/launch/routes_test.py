"""The commands of each route, and what is read from their answers."""

import argparse
import json
import re
import shutil
import subprocess

import pytest

from bert_jax import errors
from launch import (
  bucket,
  commands,
  compute,
  control,
  plan,
  project,
  queued,
  resource,
  start,
  watch,
)
from launch.world import World
from tests.launch import fakes

# Flags that gcloud 528 (2025-06-20) does not know yet, as of 2026-11-22: none.
NEWER = ()


def make(topology, **fields):
  """Returns a plan."""
  given = {'name': 'r', 'config': 'configs/tiny.py', 'overrides': []}
  given |= {'workdir': 'gs://bkt/r', 'topology': topology, 'slices': 1}
  given |= {'zone': 'us-east5-b', 'api': None, 'spot': True, 'price': 1.0}
  given |= {'max_usd': None, 'max_hours': 2.0, **fields}
  return plan.make(argparse.Namespace(**given), 'p1')


def list_all():
  """Returns every gcloud command of every route."""
  found = []

  def note(argv, seconds=0):
    found.append(argv)
    if 'list' in argv and '--format=json' in argv:
      return commands.Result(0, '[]')
    return commands.Result(0)

  run = project.enter(note, 'p1')

  for made in (
    make('v5litepod-16'),
    make('v4-32', spot=False, slices=2),
    make('v5litepod-256'),
    make('v6e-4'),
    make('v6e-64', spot=False),
    make('v5p-128', api='queued'),
    make('tpu7x-8'),
  ):
    route = watch.ROUTES[made.api]
    for argv in route.create(made, made.zones[0], 'W', 'J', 7200.0):
      run(argv)
    run(route.delete_self(made, made.zones[0]))
  for kind in (resource.QUEUED, resource.NODE):
    run(queued.delete(resource.Resource(kind, 'r', 'us-east5-b', 'r', '')))
  for kind in (resource.TEMPLATE, resource.POLICY):
    run(compute.delete(resource.Resource(kind, 'r', 'us-east5', 'r', '')))
  control.find_all(World(run=run))
  group = resource.Resource(resource.GROUP, 'r', 'us-east5-b', 'r', '', size=4)
  compute.find_state(run, group, [])
  bucket.read(run, 'gs://bkt/x', 10)
  bucket.write(run, 'gs://bkt/x', 'text', '0')
  bucket.list_objects(run, ['gs://bkt/logs/host-*.log', 'gs://bkt/x'])
  project.find_chosen(World(run=run), True)
  start.upload(World(run=run), made, b'', 'SHA')
  return sorted({tuple(argv) for argv in found + list_worker_commands()})


def list_worker_commands():
  """Returns the gcloud commands of launch/worker.sh, with words for values."""
  with open(watch.WORKER, encoding='utf-8') as file:
    text = file.read().replace('\\\n', ' ')
  ends = r'(?= 2?>| \||\)| &|\n)'
  found = re.findall(r'\bgcloud storage [^|&>)\n]*?' + ends, text)
  return [re.sub(r'"[^"]*"', 'gs://bkt/x', line).split() for line in found]


@pytest.mark.slow
def test_gcloud_knows_every_command_and_flag(tmp_path):
  if not shutil.which('gcloud'):
    pytest.skip('gcloud is not installed')
  asked = [' '.join(argv) for argv in list_all()]
  asked.append('gcloud compute instances create r --zone=us-east5-b --spots')
  path = tmp_path / 'commands.json'
  path.write_text(json.dumps([{'command_string': line} for line in asked]))
  lint = ['gcloud', 'meta', 'lint-gcloud-commands', f'--commands-file={path}']
  done = subprocess.run(lint, capture_output=True, text=True, check=True)
  answers = json.loads(done.stdout)
  assert len(answers) == len(asked)
  refused = [
    (answer['command_string'], answer['error_message'])
    for answer in answers
    if not answer['success']
    and not any(flag in answer['error_message'] for flag in NEWER)
  ]
  # The last one is wrong, so that a linter that accepts all is noticed.
  assert [line for line, _ in refused] == asked[-1:], refused


def test_every_command_is_in_the_list():
  words = {' '.join(argv[:5]) for argv in list_all()}
  assert len(list_all()) > 25
  assert 'gcloud compute tpus queued-resources create' in words
  assert 'gcloud alpha compute instance-groups managed' in words


def test_request_for_a_spot_slice():
  (argv,) = queued.create(make('v5e:4x4'), 'us-east5-b', 'W', 'J', 9.0)
  assert argv[4:6] == ['create', 'r']
  assert {
    '--node-id=r',
    '--accelerator-type=v5litepod-16',
    '--runtime-version=v2-alpha-tpuv5-lite',
    '--spot',
    '--labels=bert-jax-run=r',
    '--metadata-from-file=startup-script=W,bert-jax-job=J',
    '--async',
  } <= {*argv}
  assert '--internal-ips' not in argv


def test_request_for_two_slices_on_demand_and_for_many_hosts():
  made = make('v4-32', slices=2, spot=False)
  (argv,) = queued.create(made, 'us-east5-b', 'W', 'J', 9.0)
  assert {'--node-prefix=r', '--node-count=2'} <= {*argv}
  assert '--spot' not in argv
  (argv,) = queued.create(make('v5litepod-64'), 'us-east5-b', 'W', 'J', 9.0)
  assert '--internal-ips' in argv


def test_single_host_is_deleted_by_the_server_half_an_hour_late():
  (argv,) = compute.create(make('v6e-4'), 'us-east5-b', 'W', 'J', 7200.0)
  assert argv[:5] == ['gcloud', 'compute', 'instances', 'create', 'r']
  assert {
    '--machine-type=ct6e-standard-4t',
    '--max-run-duration=9000s',
    '--instance-termination-action=DELETE',
    '--provisioning-model=SPOT',
  } <= {*argv}


def test_group_is_made_before_its_hosts_are_asked_for():
  argvs = compute.create(make('v6e-16'), 'us-east5-b', 'W', 'J', 7200.0)
  assert ['--accelerator-topology=4x4' in argv for argv in argvs] == [
    *(True, False, False, False)
  ]
  assert '--size=0' in argvs[2] and '--size=4' in argvs[3]


def test_ai_zone_belongs_to_the_region_before_it():
  made = make('v6e-16', zone='us-central1-ai1a,us-east5-b')
  assert made.zones == ('us-central1-ai1a', 'us-east5-b')
  policy, *_ = compute.create(made, made.zones[0], 'W', 'J', 7200.0)
  assert '--region=us-central1' in policy


@pytest.mark.parametrize('zone', ['us-east5', 'us-east5-ai', 'us-east5-ai1'])
def test_what_is_no_zone_is_refused(zone):
  with pytest.raises(errors.UserError, match='is not a zone'):
    make('v6e-16', zone=zone)


@pytest.mark.parametrize(
  'topology, fields, message',
  [
    ('tpu7x-8', {'api': 'queued'}, 'use --api=compute'),
    ('v5litepod-16', {'api': 'compute'}, 'use --api=queued'),
    ('v4:2x2x6', {}, 'no accelerator type; use one of v4-8, v4-16'),
    ('v6e-16', {'slices': 2}, 'needs --api=queued'),
  ],
)
def test_what_an_api_lacks_is_refused(topology, fields, message):
  with pytest.raises(errors.UserError, match=message):
    make(topology, **fields)


@pytest.mark.parametrize(
  'state, known',
  [
    ('ACCEPTED', 'waiting'),
    ('WAITING_FOR_RESOURCES', 'waiting'),
    ('PROVISIONING', 'provisioning'),
    ('ACTIVE', 'active'),
    ('SUSPENDED', 'preempted'),
    ('FAILED', 'failed'),
    ('DELETING', 'deleting'),
    ('SOMETHING_NEW', 'provisioning'),  # left alone
  ],
)
def test_states_of_queued_resources(state, known):
  node = {'labels': {'bert-jax-run': 'r'}, 'metadata': {'bert-jax-job': 'x'}}
  name = 'projects/p/locations/us-east5-b/queuedResources/r'
  item = {'name': name, 'tpu': {'nodeSpec': [{'node': node}]}}
  item['state'] = {'state': state, 'failedData': {'error': {'message': 'm'}}}
  other = {'name': name, 'tpu': {'nodeSpec': [{'node': {}}]}}
  (found,) = queued.parse_queued(json.dumps([item, other]))
  assert (found.state, found.place) == (known, 'us-east5-b')
  assert (found.message, found.job) == ('m', 'x')


def test_nodes_without_their_queued_resource_are_found():
  def node(name, **fields):
    name = f'projects/p/locations/us-east5-b/nodes/{name}'
    return {'name': name, 'labels': {'bert-jax-run': 'r'}, **fields}

  owner = 'projects/p/locations/us-east5-b/queuedResources/r'
  nodes = [
    node('a', queuedResource=owner, state='READY'),
    node('b', state='READY'),
    {'name': 'projects/p/locations/us-east5-b/nodes/c', 'labels': {}},
  ]
  found = queued.parse_nodes(json.dumps(nodes), {('r', 'us-east5-b')})
  assert [r.name for r in found] == ['b']


def _make_hosts(*states):
  return [
    resource.Resource(resource.INSTANCE, f'r-{n}', 'z', 'r', state)
    for n, state in enumerate(states)
  ]


@pytest.mark.parametrize(
  'size, states, answer, known',
  [
    (2, ('active', 'active'), [], 'active'),
    (2, ('active', 'waiting'), [], 'waiting'),
    (2, ('active',), [], 'waiting'),
    (2, ('active', 'preempted'), [], 'preempted'),
    (0, (), [], 'failed'),  # was made, but its hosts were not asked for
    (2, (), [{'error': {'code': 'STOCKOUT', 'message': 'm'}}], 'failed'),
  ],
)
def test_state_of_a_group_is_that_of_its_hosts(size, states, answer, known):
  group = resource.Resource(resource.GROUP, 'r', 'z', 'r', '', size=size)
  found = compute.find_state(
    lambda argv: commands.Result(0, json.dumps(answer)),
    group,
    _make_hosts(*states),
  )
  assert found.state == known


def test_only_labelled_instances_templates_and_policies_are_found():
  zone, region = 'x/zones/us-east5-b', 'x/regions/us-east5'
  instances = [
    {'name': 'a', 'zone': zone, 'status': 'RUNNING', 'labels': {'l': 'm'}},
    {'name': 'b', 'zone': zone, 'status': 'TERMINATED'}
    | {'labels': {'bert-jax-run': 'r'}},
  ]
  (found,) = compute.parse_instances(json.dumps(instances))
  assert (found.name, found.state) == ('b', 'preempted')
  policies = [
    {'name': 'a', 'region': region, 'description': 'mine'},
    {'name': 'b', 'region': region, 'description': 'bert-jax-run=r'},
  ]
  (found,) = compute.parse_policies(json.dumps(policies))
  assert (found.name, found.place) == ('b', 'us-east5')
  templates = [
    {'name': 'a', 'region': region, 'properties': {}},
    {'name': 'b', 'region': region}
    | {'properties': {'labels': {'bert-jax-run': 'r'}}},
  ]
  (found,) = compute.parse_templates(json.dumps(templates))
  assert found.name == 'b'


def test_object_changed_by_another_is_not_overwritten():
  cloud = fakes.Gcloud()
  first = bucket.write(cloud.run, 'gs://bkt/x', 'one', '0')
  with pytest.raises(bucket.Changed):
    bucket.write(cloud.run, 'gs://bkt/x', 'two', '0')
  bucket.write(cloud.run, 'gs://bkt/x', 'two', first)
  assert bucket.read(cloud.run, 'gs://bkt/x') == 'two'
  assert bucket.read(cloud.run, 'gs://bkt/none') is None


def test_numbers_in_the_names_of_objects_are_no_answers():
  cloud = fakes.Gcloud()
  cloud.errors = ['HTTPError 403: no access to gs://team-412-x/r']
  with pytest.raises(commands.CommandError, match='403'):
    bucket.write(cloud.run, 'gs://team-412-x/r', 'text', '0')
  for ask in (bucket.read, bucket.get_generation):
    cloud.errors = ['HTTPError 403: forbidden']
    with pytest.raises(commands.CommandError, match='403'):
      ask(cloud.run, 'gs://b/run is not found: 404/x')


def test_busy_service_is_asked_again_and_a_refusal_is_not():
  cloud, waited = fakes.Gcloud(), []
  cloud.write('gs://bkt/x', 'text')
  cloud.errors = ['HTTPError 503: busy', 'HTTPError 429: slow down']
  argv = ['gcloud', 'storage', 'cat', 'gs://bkt/x']
  assert commands.ask(cloud.run, argv, waited.append) == 'text'
  assert waited == [2, 5]
  cloud.errors = ['HTTPError 403: forbidden']
  with pytest.raises(commands.CommandError, match='403'):
    commands.ask(cloud.run, argv, waited.append)
  assert waited == [2, 5]
