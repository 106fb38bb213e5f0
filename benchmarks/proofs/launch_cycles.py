"""Life cycles of launch/tpu.py with the real gcloud and hosts on this machine.

  python benchmarks/proofs/launch_cycles.py [--only=happy,structural]

Nothing of Google Cloud is reached: `fake_cloud` answers for its APIs and keeps
the bucket. Hosts run launch/worker.sh, as the request for them says, with a
program of two lines (launch_whole.py trains). Prints what each cycle asked for
and deleted; the exit code is 1 unless all went as they should.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import fake_cloud

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
A, B = 'us-east5-b', 'europe-west4-b'
LIMIT = 900  # seconds for one command
FULL = 'FAILED: There is no more capacity in the zone; try another one.'


class Hosts:
  """The hosts of a resource, as processes of this machine."""

  def __init__(self, stack, folder, environment: dict, program: str = ''):
    self._folder, self.environment = folder, environment
    self.program, self.chosen = program, None  # all of its hosts, or some
    self.started = 0  # resources whose hosts were started
    self._homes, self._stack = [], stack

  def start(self, name, zone, body, arguments=lambda n: ''):
    """Runs the startup script on each host; the code is installed already."""
    self.started += 1
    metadata = body['tpu']['nodeSpec'][0]['node']['metadata']
    job = dict(x.split('=', 1) for x in metadata['bert-jax-job'].splitlines())
    for n in range(int(job['hosts'])) if self.chosen is None else self.chosen:
      home = os.path.join(self._folder, f'{name}-{self.started}-{n}')
      self._homes.append(home)
      if self.program:
        path = pathlib.Path(home, 'r', job['sha256'])
        (path / 'env/bin').mkdir(parents=True)
        (path / 'tree').mkdir()
        (path / 'ready').touch()
        (path / 'env/bin/python').write_text(f'#!/bin/bash\n{self.program}')
        (path / 'env/bin/python').chmod(0o755)
      os.makedirs(home, exist_ok=True)
      text = metadata['bert-jax-job'] + arguments(n)
      values = {'bert-jax-job': text, 'agent-worker-number': str(n)}
      values = {f'attributes/{key}': value for key, value in values.items()}
      port = self._stack.enter_context(fake_cloud.serve_metadata(values))
      own = {'GCE_METADATA_HOST': f'127.0.0.1:{port}', 'BERT_JAX_HOME': home}
      with open(f'{home}/console', 'w') as console:
        subprocess.Popen(
          ['bash', '-c', metadata['startup-script']],
          env={**self.environment, **own, 'HOME': home},
          cwd=home,
          stdout=console,
          stderr=console,
          start_new_session=True,
        )

  def kill(self, *_):
    """Ends all processes of the hosts, as when machines vanish."""
    homes, self._homes = self._homes, []
    for _ in range(3):  # also what was started meanwhile
      for process in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
          text = (process / 'environ').read_bytes().decode(errors='replace')
          if any(f'BERT_JAX_HOME={home}\0' in text for home in homes):
            os.kill(int(process.name), signal.SIGKILL)


class Stage:
  """One cycle: its cloud, its hosts, its folder, and what was printed."""

  def __init__(self, stack, name, folder, bucket=0):
    self.name, self.text, self.limit = name, '', 600.0
    self.cloud = fake_cloud.Cloud()
    port = stack.enter_context(fake_cloud.serve(self.cloud.answer))
    self.environment = {
      **os.environ,
      **fake_cloud.make_environment(port, folder, bucket),
      'XDG_STATE_HOME': f'{folder}/state',
      'BERT_JAX_LAUNCH_PERIOD': '0.5',
      'BERT_JAX_TICK': '0.05',
      'PYTHONUNBUFFERED': '1',
    }
    program = 'sleep 2; exit 0'
    self.hosts = Hosts(stack, f'{folder}/hosts', self.environment, program)
    stack.callback(self.hosts.kill)
    self.cloud.on_active, self.cloud.on_gone = self.hosts.start, self.hosts.kill

  def start(self, *words: str) -> subprocess.Popen:
    """Starts launch/tpu.py."""
    argv = [sys.executable, os.path.join(ROOT, 'launch/tpu.py'), *words]
    more = {
      'stdout': subprocess.PIPE,
      'stderr': subprocess.STDOUT,
      'text': True,
    }
    return subprocess.Popen(argv, cwd=ROOT, env=self.environment, **more)

  def start_run(self, *more: str) -> subprocess.Popen:
    """Starts `launch/tpu.py run`."""
    return self.start(
      *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
      *(f'--workdir=gs://bkt/{self.name}', '--no_preflight'),
      *('--topology=v5litepod-4', f'--zone={A},{B}', *more),
    )

  def finish(self, process: subprocess.Popen) -> int:
    """Waits for launch/tpu.py; returns its exit code."""
    try:
      self.text += process.communicate(timeout=LIMIT)[0]
    except subprocess.TimeoutExpired:
      process.kill()
      self.text += process.communicate()[0] + '\ntook too long'
    return process.returncode

  def run(self, *more: str) -> int:
    """Runs `launch/tpu.py run` to its end."""
    return self.finish(self.start_run(*more))

  def wait_for(self, holds):
    """Waits until a condition holds."""
    deadline = time.monotonic() + LIMIT
    while not holds():
      if time.monotonic() > deadline:
        raise TimeoutError(self.text)
      time.sleep(0.05)

  def kill_launcher(self):
    """Starts a run and kills the launcher when hosts run."""
    process = self.start_run()
    url, none = f'gs://bkt/{self.name}/launch/ledger.json', (b'',)
    self.wait_for(lambda: b'"active"' in self.cloud.objects.get(url, none)[0])
    process.kill()
    self.finish(process)


def happy(stage):
  """Asked for once, trains, deletes itself."""
  yield 'exit code 0', stage.run() == 0
  yield 'one request', stage.cloud.count('create') == 1
  yield 'host log shown', '[worker 0] ' in stage.text
  down = 'to end everything: python launch/tpu.py down r'
  yield 'down line first', stage.text.startswith(down)


def preempted_twice(stage):
  """Two slices are taken away; the third finishes."""
  stage.hosts.program = 'sleep 60'

  def on_active(*words):
    if stage.hosts.started == 2:
      stage.hosts.program = 'exit 0'
    else:
      threading.Timer(5, stage.cloud.set_states, ('SUSPENDED',)).start()
    stage.hosts.start(*words)

  stage.cloud.on_active = on_active
  yield 'exit code 0', stage.run() == 0
  yield 'three requests', stage.cloud.count('create') == 3
  yield 'two preemptions', 'preemptions 2' in stage.text


def zone_full(stage):
  """The first zone has no capacity; the second has."""
  stage.cloud.script[A, 0] = ('ACCEPTED', FULL)
  yield 'exit code 0', stage.run() == 0
  zones = [zone for act, _, zone in stage.cloud.history if act == 'create']
  yield 'A, then B', zones == [A, B]


def structural(stage):
  """What no zone can help with ends the launch."""
  text = "FAILED: Quota 'TPUV5sLitepodPerProject' exceeded. Limit: 0 in region"
  stage.cloud.script[A, 0] = ('ACCEPTED', text)
  yield 'exit code 1', stage.run() == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'reason shown', 'ended     structural: Quota' in stage.text


def down_while_provisioning(stage):
  """`down` waits for what cannot be deleted, and the supervisor ends."""
  stage.cloud.script[A, 0] = (*['PROVISIONING'] * 12, 'ACTIVE')
  process = stage.start_run()
  stage.wait_for(lambda: stage.cloud.count('create'))
  code = stage.finish(stage.start('down', 'r'))
  yield 'down succeeds', code == 0 and 'nothing is left.' in stage.text
  yield 'down says why it waits', 'cannot be deleted yet' in stage.text
  yield 'the run ends as stopped', stage.finish(process) == 1
  yield 'no deletion tried', not stage.cloud.refused
  yield 'one request', stage.cloud.count('create') == 1


def busy(stage):
  """429 and 503 in every phase change nothing."""
  stage.cloud.broken += [503, 429, 503]
  stage.hosts.program = 'sleep 9; exit 0'
  process = stage.start_run()
  stage.wait_for(lambda: stage.hosts.started)
  stage.cloud.broken += [429, 503, 503, 503, 429]
  yield 'exit code 0', stage.finish(process) == 0
  yield 'one request', stage.cloud.count('create') == 1
  yield 'all failures were met', not stage.cloud.broken


def launcher_killed(stage):
  """A killed supervisor's successor adopts hosts, and replaces lost ones."""
  stage.hosts.program = 'sleep 60'
  stage.kill_launcher()
  stage.hosts.program = 'exit 0'
  stage.cloud.set_states('SUSPENDED')  # while nobody watches
  yield 'exit code 0', stage.run() == 0
  yield 'it says so', 'going on with launch' in stage.text
  yield 'two requests', stage.cloud.count('create') == 2
  yield 'one preemption', 'preemptions 1' in stage.text


def nobody_watches(stage):
  """Without a supervisor, the hosts still delete themselves."""
  stage.kill_launcher()
  stage.wait_for(lambda: not stage.cloud.items)
  yield 'one request', stage.cloud.count('create') == 1


def host_0_dies(stage):
  """Host 0 of four is dead, and nobody watches: the others end and delete."""
  stage.hosts.program, stage.hosts.chosen = 'exit 75', (1, 2, 3)
  process = stage.start_run('--topology=v5litepod-16')
  stage.wait_for(lambda: stage.hosts.started)
  process.kill()
  stage.finish(process)
  stage.wait_for(lambda: not stage.cloud.items)
  ends = [url for url in stage.cloud.objects if url.endswith('/end')]
  yield 'the reason is known', 'crashed' in stage.cloud.read(ends[0])


def max_usd(stage):
  """The money runs out: the hosts are deleted."""
  # 4 chips x $1.20 an hour: $0.02 are 15 seconds.
  stage.hosts.program, stage.limit = 'sleep 600', 15.0
  yield 'exit code 1', stage.run('--max_usd=0.02') == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'reason shown', 'ended     out of time' in stage.text


def exit_code_1(stage):
  """A run that refuses its config is not tried again."""
  stage.hosts.program = 'echo error: batch_size=7 is odd.; exit 1'
  yield 'exit code 1', stage.run() == 1
  yield 'one request', stage.cloud.count('create') == 1
  yield 'last lines shown', 'error: batch_size=7 is odd.' in stage.text


def bucket_refuses(stage):
  """Hosts that cannot write to the bucket are rented three times."""
  own = f'name={stage.name}/'  # as hosts write it
  stage.cloud.refuse = lambda method, url: (
    403 * (method == 'POST' and own in url)
  )
  yield 'exit code 1', stage.run() == 1
  yield 'three requests', stage.cloud.count('create') == 3
  yield 'reason shown', 'without a log, a status or a new step' in stage.text


def zone_silent(stage):
  """A zone that does not answer is neither empty nor left."""
  stage.hosts.program = 'sleep 60'
  process = stage.start_run()
  stage.wait_for(lambda: stage.hosts.started)
  stage.cloud.dark = {A}
  yield 'ls fails', stage.finish(stage.start('ls')) == 1
  yield 'it says why', f'{A} could not be asked' in stage.text
  yield 'nothing is concluded', 'nothing is rented.' not in stage.text
  threading.Timer(20, setattr, (stage.cloud, 'dark', set())).start()
  yield 'down succeeds later', stage.finish(stage.start('down', 'r')) in (0, 1)
  stage.wait_for(lambda: not stage.cloud.dark)
  yield 'then all is gone', stage.finish(stage.start('down', 'r')) == 0
  stage.finish(process)
  yield 'one request', stage.cloud.count('create') == 1


def notes_damaged(stage):
  """`down` needs neither note, ledger nor status."""
  stage.hosts.program = 'sleep 60'
  stage.kill_launcher()
  workdir = f'gs://bkt/{stage.name}'
  for name in ('launch/ledger.json', 'status.json'):
    stage.cloud.write(f'{workdir}/{name}', '{"job": [')
  note = stage.environment['XDG_STATE_HOME'] + '/bert_jax/launch/r.json'
  pathlib.Path(note).write_text('')
  yield 'exit code 0', stage.finish(stage.start('down', 'r')) == 0
  yield 'they are named', f'{note} is damaged' in stage.text


def only_labelled(stage):
  """`down --all` touches nothing of others."""
  for name, label in (('theirs', 'owner'), ('old', 'bert-jax-run')):
    spec = {'nodeSpec': [{'nodeId': 'x', 'node': {'labels': {label: 'old'}}}]}
    stage.cloud.create(name, A, {'tpu': spec})
  stage.cloud.on_active = lambda *_: None
  yield 'exit code 0', stage.finish(stage.start('down', '--all')) == 0
  yield 'only ours is gone', list(stage.cloud.items) == [('theirs', A)]
  stage.cloud.items.clear()


# fmt: off
CYCLES = (
  happy, preempted_twice, zone_full, structural, down_while_provisioning, busy,
  launcher_killed, nobody_watches, host_0_dies, max_usd, exit_code_1,
  bucket_refuses, zone_silent, notes_damaged, only_labelled,
)
# fmt: on


def play(cycle, folder) -> bool:
  """Plays a cycle and prints what happened; returns whether all is right."""
  begin = time.monotonic()
  with contextlib.ExitStack() as stack:
    stage = Stage(stack, cycle.__name__, folder)
    checks = dict(cycle(stage))
    cloud = stage.cloud
  checks['nothing left'] = not cloud.items
  checks['within the limit'] = cloud.rented < stage.limit + 20
  checks['never two alive'] = cloud.most_alive <= 1 + (cycle is only_labelled)
  acts = ', '.join(f'{act} in {zone}' for act, _, zone in cloud.history)
  good, seconds = all(checks.values()), time.monotonic() - begin
  print(f'{"ok  " if good else "FAIL"} {cycle.__name__} ({seconds:.0f} s)')
  print(f'     {cycle.__doc__}\n     {acts}; {cloud.rented:.0f} s of rent')
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
  for cycle in chosen:
    with tempfile.TemporaryDirectory() as folder:
      good.append(play(cycle, folder))
  print(f'verdict: {"ok" if all(good) else "FAILED"}, {len(good)} cycles')
  return 0 if all(good) else 1


if __name__ == '__main__':
  sys.exit(main())
