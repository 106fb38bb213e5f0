"""The commands of gcloud, and what is read from Google's answers."""

import json
import re
import shutil
import subprocess

import pytest

from bert_jax import errors
from launch import archive, plan, queued, supervisor, tpu, world
from tests.launch.fakes import RUN


def make(*more, **fields):
  """Returns a plan of `launch/tpu.py run` with more arguments."""
  given, rest = tpu.make_parser().parse_known_args([*RUN, '--price=1', *more])
  given.overrides = rest
  given.spot = fields.pop('spot', True)
  made = plan.make_plan(given)
  vars(made).update(fields)
  return made


def create(*more):
  """Returns the command that asks for a slice."""
  spot = '--flex_start' not in more
  given = make('--max_hours=2', *more, spot=spot, project='p1')
  ledger = supervisor.Ledger('l-1', sha256='s')
  return queued.prepare(world.World(), given, ledger, 'J')[0]


@pytest.mark.slow
def test_gcloud_knows_every_command_and_flag(tmp_path):
  if not shutil.which('gcloud'):
    pytest.skip('gcloud is not installed')
  argvs = [create(*more.split()) for more in REQUESTS]
  login = '{"credential": {"access_token": "t"}}'
  run = lambda argv: argvs.append(argv) or world.Result(0, login)  # noqa: E731
  here = world.World(run=run, project='p1')
  queued.delete(here, queued.Resource('r', 'us-east5-b', 'r', 'l-1', ''))
  here.log_in()
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
  '--spot': f'--metadata-from-file=^|^startup-script={queued.WORKER}|bert-jax-job=J',
  '--service_account=a@b.test.com': '--service-account=a@b.test.com',
  '--topology=v4-32 --slices=2': '--node-prefix=r-1 --node-count=2',
  '--topology=v5litepod-64': '--internal-ips',  # there are 8 external ones
  '--gcloud_arg=--reserved': '--reserved',
  # The server's limit is half an hour after ours.
  '--flex_start': 'alpha --max-run-duration=9000s',
  '--gcloud_arg=--tags=x,y --gcloud_arg=--range=c': '--tags=x,y --range=c',
}


@pytest.mark.parametrize('more', REQUESTS)
def test_request_for_hosts(more):
  argv = create(*more.split())
  assert {*REQUESTS[more].split()} <= {*argv}
  other = 'flex' in more
  assert ('--spot' in argv, '--internal-ips' in argv) == (
    not other,
    '64' in more,
  )


def test_the_lower_limit_of_hours_and_money_counts():
  # 4 chips at $1 an hour.
  assert make('--max_usd=80').hours == 20
  assert make('--max_usd=80', '--max_hours=5').hours == 5


WORKDIRS = ('a*', 'a/../b', 'a\ndelete=x', '', 'a/')
LINES = ('=c.py:a\ndelete=x', '=configs/*.py', '.data.dir=../x')
REFUSED = {
  '--topology=tpu7x-8': 'on GKE alone',
  '--topology=v4:2x2x6': 'no accelerator type, such as v4-32',
  '--name=Large': 'use up to 40 of a-z',
  '--max_hours=inf': 'must be above 0 and finite',
  '--confg=x': 'not an argument',
  '--flex_start': 'give one of --spot and --flex_start',
  '--gcloud_arg=--labels=a=b': 'does not give itself',
  **{f'--config{text}': 'must be one line' for text in LINES},
  **{f'--workdir=gs://bkt/{name}': 'must be gs://BUCKET' for name in WORKDIRS},
}


@pytest.mark.parametrize('more', REFUSED)
def test_what_cannot_be_is_refused(more):
  assert make('--zone=us-central1-ai1a').zones == ['us-central1-ai1a']
  with pytest.raises(errors.UserError, match=REFUSED[more]):
    make(more)


PASSING = """
There is no more capacity in the zone "us-east5-b"
HTTPError 403: Quota 'TPUS_PER_PROJECT' exceeded. Limit: 32.0
Quota 'CHIP_HOURS' exceeded. Limit: 0.5 globally
PERMISSION_DENIED: permission to submit requests for accelerator type v6e-8
Location us-east9-z was not found
the request has expired: valid_until has passed
Quota exceeded for quota metric 'Read requests' per minute of service 'tpu'
ALREADY_EXISTS: resource 'r' already exists
HTTPError 503: billing-test: try again later
gs://b/run-403/logs: HTTPError 503: try again
an internal thing went wrong"""
STRUCTURAL = """
429: Quota limit 'TPUV5sPodPerProject' has been exceeded. Limit: 0.
PERMISSION_DENIED: Permission denied on locations
This API method requires billing to be enabled.
INVALID_ARGUMENT: unknown runtime
gcloud: [Errno 2] No such file or directory: 'gcloud'
Denied by org policy: constraints/compute.vmExternalIpAccess -- give --gcloud_arg
'iam.serviceAccounts.actAs' denied on x@y.z -- give yourself roles/iam.serviceAccou
service-7@cloud-tpu.iam.gserviceaccount.com is missing -- gcloud beta services ident"""


@pytest.mark.parametrize('line', PASSING.splitlines()[1:])
def test_refusal_that_may_pass(line):
  assert queued.find_structural(line) is None


@pytest.mark.parametrize('line', STRUCTURAL.splitlines()[1:])
def test_refusal_that_ends_a_launch_says_what_helps(line):
  assert queued.find_structural(line.partition(' -- ')[0]).startswith(line)
