"""The commands of gcloud, and what is read from Google's answers."""

import json
import re
import shutil
import subprocess

import pytest

from bert_jax import errors
from launch import archive, bucket, plan, queued, tpu, world
from tests.launch.fakes import RUN, A, Google, make_old


def make(*more, **fields):
  """Returns a plan of `launch/tpu.py run` with more arguments."""
  given, rest = tpu.make_parser().parse_known_args([*RUN, '--price=1', *more])
  given.overrides = rest
  vars(given).update(fields)
  return plan.make_plan(given)


def create(*more):
  """Returns the command that asks for a slice."""
  spot = not {'--reserved', '--flex_start'} & {*more}
  return queued.create(make(*more, spot=spot), 'l-1', A, ('W', 'J'), 7200.0)


@pytest.mark.slow
def test_gcloud_knows_every_command_and_flag(tmp_path):
  if not shutil.which('gcloud'):
    pytest.skip('gcloud is not installed')
  argvs = [create(*more.split()) for more in REQUESTS]
  login = '{"credential": {"access_token": "t"}}'
  run = lambda argv: argvs.append(argv) or world.Result(0, login)  # noqa: E731
  here = world.World(run=run, project='p1')
  queued.delete(here, queued.Resource('r', A, 'r', 'l-1', ''))
  world.log_in(here)
  with open(f'{archive.ROOT}/docs/launch.md', encoding='utf-8') as file:
    text = re.sub(r'\bPROJECT\b|\$\(.*?\)', 'p1', file.read())
  shown = re.findall(r'^gcloud (?:.|\\\n)*?(?=  #|$)', text, re.MULTILINE)
  asked = [*map(' '.join, argvs), *(x.replace('\\\n', ' ') for x in shown)]
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
  '--service_account=a@b.test.com': '--service-account=a@b.test.com',
  '--topology=v4-32 --slices=2': '--node-prefix=r-1 --node-count=2',
  '--topology=v5litepod-64': '--internal-ips',  # there are 8 external ones
  '--reserved': '--reserved',
  # The server's limit is half an hour after ours.
  '--flex_start': 'alpha --max-run-duration=9000s',
  '--network=n --subnetwork=s': '--network=n --subnetwork=s',
  '--internal_ips': '--internal-ips',
  '--gcloud_arg=--tags=x,y --gcloud_arg=--range=c': '--tags=x,y --range=c',
}


@pytest.mark.parametrize('more', REQUESTS)
def test_request_for_hosts(more):
  argv = create(*more.split())
  assert {*REQUESTS[more].split()} <= {*argv}
  other = 'reserved' in more or 'flex' in more
  inside = '64' in more or 'internal' in more
  assert ('--spot' in argv, '--internal-ips' in argv) == (not other, inside)


def test_the_lower_limit_of_hours_and_money_counts():
  # 4 chips at $1 an hour.
  assert make('--max_usd=80').hours == 20
  assert make('--max_usd=80', '--max_hours=5').hours == 5


WORKDIRS = ('a*', 'a/../b', 'a\n', 'a b', 'a#', 'a\ndelete=x', '', 'a/')
LINES = ('=c.py:a\ndelete=x', '=../tiny.py', '=configs/*.py')
LINES += ('.seed=1\nargument=x', '.data.dir=../x')
REFUSED = {
  '--topology=tpu7x-8': 'on GKE alone',
  '--topology=v4:2x2x6': 'no accelerator type, such as v4-32',
  '--zone=us-east5': 'is not a zone',
  '--topology=v5litepod-17': 'did you mean',
  '--topology=h100:8': 'not a slice of TPUs',
  '--name=Large': 'use up to 40 of a-z',
  '--max_usd=0': 'must be above 0',
  '--max_hours=inf': 'must be above 0 and finite',
  '--confg=x': 'not an argument',
  '--flex_start': 'give one of --spot and --flex_start',
  '--gcloud_arg=--labels=a=b': 'does not give itself',
  '--gcloud_arg=--zone=x': 'does not give itself',
  '--gcloud_arg=x': 'must be an argument of',
  **{f'--config{text}': 'must be one line' for text in LINES},
  **{f'--workdir=gs://bkt/{name}': 'must be gs://BUCKET' for name in WORKDIRS},
}


@pytest.mark.parametrize('more', REFUSED)
def test_what_cannot_be_is_refused(more):
  assert make('--zone=us-central1-ai1a').zones == ['us-central1-ai1a']
  with pytest.raises(errors.UserError, match=REFUSED[more]):
    make(more)


def log_in(cloud):
  """Returns a world that is logged in."""
  here = cloud.world()
  world.log_in(here)
  here.project = 'p1'
  return here


def test_resources_are_found_on_all_pages():
  here, first = log_in(make_old('ACTIVE')), {'nextPageToken': 't'}
  send = here.send

  def answer(method, url, *rest):
    if 'pageToken=t' in url:
      return send(method, url, *rest)
    return world.Answer(200, json.dumps(first).encode())

  here.send = answer
  resources, _ = queued.find(here, ['-', A])
  assert [item.name for item in resources] == ['old-1']


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
  properties = {'api_endpoint_overrides': {'tpu': 'http://127.0.0.1:9/'}}
  here = world.World(login={'configuration': {'properties': properties}})
  answer = world.send('GET', world.find_base(here, 'tpu'), None, {})
  assert answer.code == 0 and b'refused' in answer.data
