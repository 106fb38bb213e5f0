"""The commands of gcloud, and what is read from Google's answers."""

import json
import re
import shutil
import subprocess

import pytest

from bert_jax import errors
from launch import archive, bucket, plan, queued, tpu, world
from tests.launch.fakes import RUN, A, B, Google, add, make_old

ZONE = 'us-east5-b'


def make(*more, **fields):
  """Returns a plan of `launch/tpu.py run` with more arguments."""
  given, rest = tpu.make_parser().parse_known_args([*RUN, '--price=1', *more])
  given.overrides = rest
  vars(given).update(fields)
  return plan.make(given)


def create(*more, **fields):
  """Returns the command that asks for a slice."""
  return queued.create(make(*more, **fields), 'l-1', ZONE, ('W', 'J'), 7200.0)


def list_commands():
  """Returns every command of gcloud in the sources, and in the docs."""
  found = [
    create('--topology=v5litepod-16', '--network=n', '--subnetwork=s'),
    create('--topology=v4-32', '--slices=2', '--internal_ips'),
    create('--reserved', spot=False),
    create('--topology=v5litepod-256', '--service_account=a@p1.iam.test.com'),
    create(
      '--topology=v6e-8', '--gcloud_arg=--tags=a,b', '--gcloud_arg=--range=c'
    ),
    create('--flex_start', spot=False),
  ]
  run = lambda argv: found.append(argv) or world.Result(0, '{}')  # noqa: E731
  here = world.World(run=run, project='p1')
  for kind in ('queuedResources', 'nodes'):
    queued.delete(here, queued.Resource(kind, 'r', ZONE, 'r', 'l-1', ''))
  world.log_in(here)
  with open(f'{archive.ROOT}/docs/launch.md', encoding='utf-8') as file:
    text = file.read().replace('\\\n', ' ')
  shown = re.findall(r'^gcloud .*?(?=  #|$)', text, re.MULTILINE)
  names = re.compile(r'\bPROJECT\b|\$\(.*?\)')
  return [' '.join(argv) for argv in found] + [
    names.sub('p1', x) for x in shown
  ]


@pytest.mark.slow
def test_gcloud_knows_every_command_and_flag(tmp_path):
  if not shutil.which('gcloud'):
    pytest.skip('gcloud is not installed')
  asked = list_commands()
  assert len(asked) > 15
  asked.append('gcloud compute instances create r --zone=us-east5-b --spots')
  path = tmp_path / 'commands.json'
  path.write_text(json.dumps([{'command_string': line} for line in asked]))
  lint = ['gcloud', 'meta', 'lint-gcloud-commands', f'--commands-file={path}']
  done = subprocess.run(lint, capture_output=True, text=True, check=True)
  answers = [x for x in json.loads(done.stdout) if not x['success']]
  refused = {x['command_string']: x['error_message'] for x in answers}
  # The last one is wrong, so that a linter that accepts all is noticed.
  assert list(refused) == asked[-1:], refused


REQUESTS = {
  '--topology=v5e:4x4': """--node-id=r-1 --accelerator-type=v5litepod-16 --spot
  --async --runtime-version=v2-alpha-tpuv5-lite --valid-until-duration=6h
  --labels=bert-jax-run=r,bert-jax-launch=l-1""",
  # Paths with commas are possible.
  '--spot': '--metadata-from-file=^|^startup-script=W|bert-jax-job=J',
  '--topology=v4-32 --slices=2': '--node-prefix=r-1 --node-count=2',
  '--topology=v5litepod-64': '--internal-ips',  # there are 8 external ones
  '--reserved': '--reserved',
  # The server's limit is half an hour after ours.
  '--flex_start': 'alpha --max-run-duration=9000s',
  '--network=n --subnetwork=s': '--network=n --subnetwork=s',
  '--internal_ips --service_account=a@b.c': '--service-account=a@b.c',
  '--gcloud_arg=--tags=x,y': '--tags=x,y',
}


@pytest.mark.parametrize('more', REQUESTS)
def test_request_for_hosts(more):
  models = [x for x in ('reserved', 'flex_start') if x in more]
  argv = create(*more.split(), spot=not models)
  assert {*REQUESTS[more].split()} <= {*argv}
  assert ('--spot' in argv) == (not models)
  inside = '64' in more or 'internal' in more
  assert ('--internal-ips' in argv) == inside


WORKDIRS = ('a*', 'a/../b', 'a\n', 'a b', 'a#', 'a\ndelete=x', '', 'a/')
REFUSED = {
  '--topology=tpu7x-8': 'on GKE alone',
  '--topology=v4:2x2x6': 'no accelerator type; use one of v4-8, v4-16',
  '--zone=us-east5': 'is not a zone',
  '--zone=us-east5-ai1': 'is not a zone',
  '--topology=v5litepod-17': 'did you mean',
  '--topology=h100:8': 'not a slice of TPUs',
  '--name=Large': 'use up to 40 of a-z',
  '--max_usd=0': 'must be above 0',
  '--max_hours=inf': 'must be above 0 and finite',
  '--price=nan': 'must be above 0 and finite',
  '--confg=x': 'not an argument',
  '--flex_start': 'give one of --spot and --flex_start',
  '--gcloud_arg=--labels=a=b': 'does not give itself',
  '--gcloud_arg=--zone=x': 'does not give itself',
  '--gcloud_arg=x': 'must be an argument of',
  '--config=configs/tiny.py:a\ndelete=x': 'must be one line',
  '--config=../tiny.py': 'must be one line',
  '--config=configs/*.py': 'must be one line',
  '--config.seed=1\nargument=x': 'must be one line',
  '--config.data.dir=../x': 'must be one line',
  **{f'--workdir=gs://bkt/{name}': 'must be gs://BUCKET' for name in WORKDIRS},
}


@pytest.mark.parametrize('more', REFUSED)
def test_what_cannot_be_is_refused(more):
  assert make('--zone=us-central1-ai1a').zones == ('us-central1-ai1a',)
  with pytest.raises(errors.UserError, match=REFUSED[more]):
    make(more)


STATES = """
ACCEPTED waiting, WAITING_FOR_RESOURCES waiting, PROVISIONING provisioning,
ACTIVE active, SUSPENDED preempted, FAILED failed, DELETING deleting,
SOMETHING_NEW provisioning"""  # which is left alone


@pytest.mark.parametrize('words', STATES.split(','))
def test_states_of_queued_resources(words):
  state, known = words.split()
  cloud = make_old(f'{state}: m')
  (found,), silent = queued.find(log_in(cloud), [A])
  assert (found.state, found.zone, found.launch) == (known, A, 'j-1')
  assert found.message == 'm' and not silent


def log_in(cloud):
  """Returns a world that is logged in."""
  here = cloud.world()
  world.log_in(here)
  here.project = 'p1'
  return here


def test_nodes_without_their_queued_resource_are_found():
  cloud = make_old('ACTIVE')
  place, labels = f'projects/p/locations/{A}', {'bert-jax-run': 'r'}
  owner = {'queuedResource': f'{place}/queuedResources/old-1'}
  names = {'a': {'labels': labels} | owner, 'b': {'labels': labels}, 'c': {}}
  nodes = [{'name': f'{place}/nodes/{k}', **v} for k, v in names.items()]
  here, send = log_in(cloud), cloud.send
  listed = world.Answer(200, json.dumps({'nodes': nodes}).encode())
  here.send = lambda method, url, *rest: (
    listed if '/nodes' in url else send(method, url, *rest)
  )
  found, _ = queued.find(here, ['-', A])
  assert sorted(item.name for item in found) == ['b', 'old-1']


def test_all_pages_of_a_list_are_read():
  here, pages = log_in(Google()), []

  def send(method, url, *rest):
    pages.append(url)
    more = {} if 'pageToken' in url else {'nextPageToken': 't'}
    return world.Answer(200, json.dumps(more).encode())

  here.send = send
  assert queued.find(here, [A]) == ([], {}) and len(pages) == 4


@pytest.mark.parametrize('zones', [['-'], [A, B]])
def test_zones_that_are_unreachable_are_named(zones):
  cloud = make_old('ACTIVE')
  add(cloud, 'old', 'ACTIVE', zone=B)
  cloud.dark = {B}
  found, silent = queued.find(log_in(cloud), zones)
  assert [item.zone for item in found] == [A] and list(silent) == [B]


def test_object_changed_by_another_is_not_overwritten():
  here = log_in(Google())
  first = bucket.write(here, 'gs://bkt/x', 'one', '0')
  with pytest.raises(bucket.Changed):
    bucket.write(here, 'gs://bkt/x', 'two', '0')
  bucket.write(here, 'gs://bkt/x', 'two', first)
  assert bucket.read(here, 'gs://bkt/x')[:2] == ('two', '2')
  assert bucket.read(here, 'gs://bkt/x', 1).text == 'wo'
  assert bucket.read(here, 'gs://bkt/none')[:2] == (None, '0')


def test_busy_service_is_asked_again_and_a_refusal_is_not():
  cloud, waited = Google(), []
  here = log_in(cloud)
  here.sleep = waited.append
  cloud.write('gs://bkt/x', 'text')
  cloud.broken = [503, 429]
  assert bucket.read(here, 'gs://bkt/x').text == 'text' and waited == [2, 5]
  cloud.broken = [403]
  with pytest.raises(world.Unknown, match='403'):
    bucket.read(here, 'gs://bkt/x')
  assert waited == [2, 5]
  cloud.broken = [401]  # the token has expired
  assert bucket.read(here, 'gs://bkt/x').text == 'text'
  assert sum('config-helper' in argv for argv in cloud.argvs) == 2


def test_settings_of_gcloud_are_obeyed():
  overrides = {'tpu': 'http://x/', 'storage': 'http://y/storage/v1/'}
  here = world.World()
  assert world.find_base(here, 'tpu') == 'https://tpu.googleapis.com/'
  properties = {'api_endpoint_overrides': overrides}
  here.login = {'configuration': {'properties': properties}}
  assert world.find_base(here, 'tpu') == 'http://x/'
  assert world.find_base(here, 'storage') == 'http://y/'
  answer = world.send('GET', 'http://127.0.0.1:9/', None, {})
  assert answer.code == 0 and 'refused' in answer.describe()
