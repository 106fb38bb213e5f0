"""What launch/worker.sh does, on loopback, at many times its speed.

The program is a short script here; bucket and APIs are `fake_cloud`.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import time

import fake_cloud
import pytest

from launch import plan, queued, world

DELETED = -signal.SIGKILL  # how a host ends that the cloud takes away
BASE = 'gs://b/r/launch/l-1'
# Ends with the next code of a list, or hangs until it is told to end; +5 is a
# step forward, then a crash.
PROGRAM = r"""
trap 'echo "saved"; exit 143' TERM
echo "arguments: $*"
read -r code <"$CODES"
sed -i 1d "$CODES"
while [[ $code == hang && $SECONDS -lt 200 ]]; do sleep 0.05; done
if [[ $code == +* ]]; then
  curl --silent --data-binary "{\"step\": ${code#+}, \"steps\": 9}" \
    "$CLOUD/upload/storage/v1/b/b/o?name=r/status.json" >/dev/null
  code=70
fi
echo "ends with $code"
exit "$code"
"""


def _rent(cloud):
  cloud.create('r-1', 'z', {})
  cloud.items['r-1', 'z'] |= {'running': time.time(), 'states': ['ACTIVE']}


@pytest.fixture
def host(tmp_path):
  """Returns a function that starts a host, and has `cloud`."""
  if not shutil.which('curl'):
    pytest.skip('curl is not installed')
  cloud, started = fake_cloud.Cloud(), []
  _rent(cloud)

  def kill(*_):
    for process in started:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)

  cloud.on_gone = kill
  with contextlib.ExitStack() as stack:
    port = stack.enter_context(fake_cloud.serve(cloud.answer))
    stack.callback(lambda: (kill(), [x.wait() for x in started]))
    made = functools.partial(_begin, tmp_path, stack, port, started)
    made.cloud = cloud
    made.log = lambda n=0: cloud.read(f'gs://b/r/logs/host-{n}.log')
    made.end = lambda name='end': cloud.read(f'{BASE}/{name}').splitlines()
    yield made


def _make_job(port, topology='v5litepod-4', slices=1, seconds=1000, **more):
  here = f'http://127.0.0.1:{port}'
  properties = {'api_endpoint_overrides': {'storage': f'{here}/storage/v1/'}}
  to = world.World(login={'configuration': {'properties': properties}})
  delete = f'{here}/v2/projects/p1/locations/z/queuedResources/r-1?force=true'
  more = {'sha256': 'SHA', 'archive': 'launch/code', 'delete': delete, **more}
  run = argparse.Namespace(name='r', workdir='gs://b/r', config='c')
  run.overrides = ['--a b', "--c='d'"]
  chips = plan.parse_topology(topology, slices)
  return queued.render_job(to, run, 'l-1', chips, seconds, **more)


def _begin(folder, stack, port, started, *codes, number='0', **more):
  """Starts a host whose program ends with some codes; returns its process."""
  pod, told = more.pop('pod', False), more.pop('attributes', {})
  home, bin_ = f'{folder}/home{len(started)}', folder / 'bin'
  bin_.mkdir(exist_ok=True)
  if pod:
    (bin_ / 'python3').write_text(f'#!/usr/bin/env bash\n{PROGRAM}')
    (bin_ / 'python3').chmod(0o755)
  env = {'BERT_JAX_MINUTE': more.pop('minute', '2'), 'BERT_JAX_TICK': '0.01'}
  text = ''.join(f'{code}\n' for code in codes)
  (folder / f'codes{len(started)}').write_text(text)
  text = _make_job(port, **more)
  env |= {'PATH': f'{bin_}:{os.environ["PATH"]}'}
  env |= {'CODES': f'{folder}/codes{len(started)}'}
  env |= {'CLOUD': f'http://127.0.0.1:{port}'}
  env |= {'BERT_JAX_JOB': text, 'JOB_COMPLETION_INDEX': number} if pod else {}
  script = pathlib.Path(queued.WORKER).read_text()
  told = {'startup-script': script, 'agent-worker-number': number, **told}
  told = {'bert-jax-job': text} | told
  process = fake_cloud.start_host(stack, home, env, told, PROGRAM)
  started.append(process)
  return process


def wait_for(holds):
  for _ in range(1200):
    with contextlib.suppress(KeyError):
      if holds():
        return
    time.sleep(0.05)
  raise TimeoutError


# Exit codes of the program, the reason to end, and how often it was started.
ENDS = [
  ((1, 0), 'failed', 1),  # a mistake is never tried again
  ((143, 129, 130, 137, 0), 'done', 5),
  # A step forward resets the count; a status that is lost, or older, does not.
  ((9, '+5', '+', '+5', '+3', '+5', 9), 'crashed', 5),
]


@pytest.mark.parametrize('codes, reason, starts', ENDS)
def test_exit_code_decides(host, codes, reason, starts):
  assert host(*codes).wait(120) == DELETED
  end = host.end('crashed-0' if reason == 'crashed' else 'end')
  assert end[0] == f'reason={reason}' and not host.cloud.items
  assert host.log().count('arguments:') == starts
  words = '-m bert_jax.main --config=c --workdir=gs://b/r --a b'
  assert f"arguments: {words} --c='d'\n" in host.log()
  if reason != 'done':
    code = str(codes[starts - 1])
    code = '70' if '+' in code else code
    assert end[1].endswith(f'exit code {code}') and f'ends with {code}' in end


@pytest.mark.parametrize('notice', ['SIGTERM', 'preempted', 'stopped'])
def test_program_is_told_to_save_when_it_has_to_end(host, notice):
  process = host('hang')
  wait_for(lambda: 'arguments:' in host.log())
  if notice == 'preempted':
    process.metadata['preempted'] = 'TRUE'
  elif notice == 'SIGTERM':
    process.send_signal(signal.SIGTERM)
  else:
    host.cloud.write(f'{BASE}/end', 'reason=stopped\n')
  ended = notice == 'stopped'
  assert process.wait(60) == (DELETED if ended else 143)
  assert 'saved' in host.log() and bool(host.cloud.items) != ended


def test_log_goes_on_and_a_refused_deletion_is_asked_for_again(host):
  host.cloud.write('gs://b/r/logs/host-0.log', 'of the host before\n')
  host.cloud.broken.append(401)  # of a pod, that has no token yet
  host.cloud.items['r-1', 'z']['states'] = ['PROVISIONING']
  process = host(0)
  wait_for(lambda: len(host.cloud.refused) == 2)
  host.cloud.items['r-1', 'z']['states'] = ['ACTIVE']
  assert process.wait(60) == DELETED
  assert host.log().startswith('of the host before\n')


def test_other_hosts_delete_when_host_0_is_dead(host):
  words = {'topology': 'v5litepod-16', 'attempt': '2'}
  process = host(*[75] * 4, number='1', **words)
  assert process.wait(120) == DELETED
  assert host.end('crashed-2')[0] == 'reason=crashed' and not host.cloud.items
  # The hosts of this request end; those of the next begin.
  _rent(host.cloud)
  assert host('hang', number='0', **words).wait(60) == DELETED
  assert 'ending: crashed' in host.log() and 'arguments:' not in host.log()
  host('hang', number='0', **words | {'attempt': '3'})
  wait_for(lambda: 'arguments:' in host.log())


def test_second_unit_deletes_what_a_dead_script_leaves(host, tmp_path):
  process = host('hang', seconds=1000)
  wait_for(lambda: 'arguments:' in host.log())
  process.kill()
  assert process.wait(60) == DELETED and host.cloud.items
  delay, *argv = (tmp_path / 'home0/units').read_text().split()[1:]
  # Half an hour after the limit, when all hosts have had their turn.
  assert 2700 < float(delay.removeprefix('--on-active=')) <= 2800
  with subprocess.Popen(argv) as unit:
    wait_for(lambda: not host.cloud.items)
    unit.kill()


def test_host_without_a_number_is_no_host_0(host):
  process = host(0, number=None, topology='v5litepod-16')
  wait_for(lambda: 'was not told its number' in host.log(4))
  assert host.end()[0] == 'reason=failed' and 'arguments:' not in host.log(4)
  assert host.cloud.items and process.poll() is None  # others come first


# Starts and the step of the last one that moved on, then, and afterwards.
STARTS = {'10 7': '11 7', '10 6': '1 7', '3 9': '4 9', '': '1 7'}
STARTS['a[$(touch x)] 7'] = '1 7'


@pytest.mark.parametrize('text', STARTS)
def test_starts_are_counted_until_a_step_forward(text, tmp_path):
  script, _, _ = pathlib.Path(queued.WORKER).read_text().rpartition('main "$@"')
  script += """
    job[launch]=l folder=. && get() { printf %s "$text"; }
    put() { cat "$1"; } && get_step() { echo 7; } && count_start"""
  argv, more = ['bash', '-c', f'declare -A job\n{script}'], {'cwd': tmp_path}
  more |= {'env': os.environ | {'text': text}, 'capture_output': True}
  done = subprocess.run(argv, **more)
  assert done.stdout.decode() == f'{STARTS[text]}\n'
  assert done.returncode == STARTS[text].startswith('11 ')
  assert os.listdir(tmp_path) == ['starts']


def test_host_that_is_started_again_goes_on_with_its_time(host):
  host.cloud.write(f'{BASE}/deadline-0', f'{time.time() - 1:.0f}\n')
  assert host('hang').wait(60) == DELETED
  assert host.end()[0] == 'reason=out of time'
  assert 'arguments:' not in host.log()


@pytest.mark.parametrize('codes, code', [((70, 0), 0), ((1, 0), 1)])
def test_pod_ends_with_0_when_done_and_else_with_1(host, tmp_path, codes, code):
  process = host(*codes, pod=True, delete='', archive='')
  assert process.wait(60) == code and host.cloud.items
  console = (tmp_path / 'home0/console').read_text()
  assert console.count('arguments: -m bert_jax.main') == 2 - code
  assert not (tmp_path / 'home0/units').exists()


@pytest.mark.skipif(not shutil.which('shellcheck'), reason='is not installed')
def test_script_is_clean_for_shellcheck():
  assert subprocess.run(['shellcheck', queued.WORKER]).returncode == 0
