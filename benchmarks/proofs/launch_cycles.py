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


class Hosts:
  """The hosts of a resource, as processes of this machine."""

  def __init__(self, stack, folder, environment: dict):
    self._stack, self._folder, self._homes = stack, folder, []
    self.environment = environment
    self.program, self.chosen = 'sleep 2; exit 0', None  # all hosts, or some
    self.started = 0  # resources whose hosts were started

  def start(self, name, zone, body, arguments=lambda n: ''):
    """Runs the startup script on each host; `program` is installed already."""
    self.started += 1
    node = body['tpu']['nodeSpec'][0]['node']
    metadata, job = node['metadata'], fake_cloud.read_job(node)
    for n in range(int(job['hosts'])) if self.chosen is None else self.chosen:
      home = pathlib.Path(self._folder, f'{name}-{self.started}-{n}')
      self._homes.append(home)
      code = home / 'r' / job['sha256']
      for path in (code / 'env/bin', code / 'tree') if self.program else [home]:
        path.mkdir(parents=True)
      if self.program:
        (code / 'ready').touch()
        (code / 'env/bin/python').write_text(f'#!/bin/bash\n{self.program}')
        (code / 'env/bin/python').chmod(0o755)
      text = metadata['bert-jax-job'] + arguments(n)
      values = {'bert-jax-job': text, 'agent-worker-number': str(n)}
      values = {f'attributes/{key}': value for key, value in values.items()}
      port = self._stack.enter_context(fake_cloud.serve_metadata(values))
      own = {'HOME': str(home), 'BERT_JAX_HOME': str(home)}
      own['GCE_METADATA_HOST'] = f'127.0.0.1:{port}'
      with open(home / 'console', 'w') as out:
        subprocess.Popen(
          ['bash', '-c', metadata['startup-script']],
          **{'cwd': home, 'stdout': out, 'stderr': out},
          env={**self.environment, **own},
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

  def __init__(self, stack, name, folder):
    self.name, self.text, self.limit = name, '', 600.0
    self.cloud = fake_cloud.Cloud()
    port = stack.enter_context(fake_cloud.serve(self.cloud.answer))
    self.environment = {
      **os.environ,
      **fake_cloud.make_environment(port, folder),
      'XDG_STATE_HOME': f'{folder}/state',
      'BERT_JAX_LAUNCH_PERIOD': '0.5',
      'BERT_JAX_TICK': '0.05',
      'PYTHONUNBUFFERED': '1',
    }
    self.hosts = Hosts(stack, f'{folder}/hosts', self.environment)
    stack.callback(self.hosts.kill)
    self.cloud.on_active, self.cloud.on_gone = self.hosts.start, self.hosts.kill

  def start(self, *words: str) -> subprocess.Popen:
    """Starts launch/tpu.py."""
    argv = [sys.executable, os.path.join(ROOT, 'launch/tpu.py'), *words]
    more = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
    more |= {'cwd': ROOT, 'env': self.environment, 'text': True}
    return subprocess.Popen(argv, **more)

  def start_run(self, *more: str) -> subprocess.Popen:
    """Starts `launch/tpu.py run`."""
    return self.start(
      *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
      *(f'--workdir=gs://bkt/{self.name}', '--no_preflight'),
      *('--topology=v5litepod-4', f'--zone={A},{B}', *more),
    )

  def finish(self, process: subprocess.Popen) -> int:
    """Waits for launch/tpu.py; returns its exit code."""
    timer = threading.Timer(LIMIT, process.kill)
    timer.start()
    self.text += process.communicate()[0]
    timer.cancel()
    return process.returncode

  def expect(self, process, code: int, *texts: str, requests=1):
    """Yields what there is to check when a command ends."""
    yield f'exit code {code} of {process.args[2]}', self.finish(process) == code
    for text in texts:
      yield f'"{text}" is printed', text in self.text
    found = sum(act == 'create' for act, _, _ in self.cloud.history)
    yield f'{requests} requests', found == requests

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


OK, ODD = 'sleep 2; exit 0', 'error: batch_size=7 is odd.'
FULL = 'FAILED: There is no more capacity in the zone; try another one.'
ZERO = "FAILED: Quota 'TPUV5sPerProject' exceeded. Limit: 0 in region"
# {cycle: (the hosts' program, failure of the first request or an argument, exit
# code, what is printed, requests)}. max_usd: 4 chips x $1.20 an hour, so $0.02
# are 15 seconds.
PLAIN = {
  'happy': (OK, '--yes', 0, '[worker 0] ', 1),
  'zone_full': (OK, FULL, 0, f'request 2: asking for them in {B}', 2),
  'zone_wrong': (OK, f'--zone=us-east9-z,{A}', 0, 'us-east9-z does not', 1),
  'structural': (OK, ZERO, 1, 'ended     structural: Quota', 1),
  'max_usd': ('sleep 600', '--max_usd=0.02', 1, 'ended     out of time', 1),
  'exit_code_1': (f'echo {ODD}; exit 1', '--yes', 1, ODD, 1),
  'exit_code_70': ('exit 70', '--yes', 1, '(3 of 3 since step 0)', 1),
}


def play_plain(stage):
  """One run, see PLAIN."""
  stage.hosts.program, more, code, text, requests = PLAIN[stage.name]
  stage.limit = 15.0 if stage.name == 'max_usd' else stage.limit
  if more.startswith('FAILED'):
    stage.cloud.script[A, 0], more = ('ACCEPTED', more), '--yes'
  yield from stage.expect(stage.start_run(more), code, text, requests=requests)


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
  yield from stage.expect(stage.start_run(), 0, 'preemptions 2', requests=3)


def down_while_provisioning(stage):
  """`down` waits for what cannot be deleted, and the supervisor ends."""
  stage.cloud.script[A, 0] = (*['PROVISIONING'] * 12, 'ACTIVE')
  process = stage.start_run()
  stage.wait_for(lambda: stage.cloud.history)
  texts = 'nothing is left.', 'cannot be deleted yet'
  yield from stage.expect(stage.start('down', 'r'), 0, *texts)
  yield 'no deletion tried', not stage.cloud.refused
  yield from stage.expect(process, 1, 'ended     stopped')


def busy(stage):
  """429 and 503 in every phase change nothing."""
  stage.cloud.broken += [503, 429, 503]
  stage.hosts.program = 'sleep 9; exit 0'
  process = stage.start_run()
  stage.wait_for(lambda: stage.hosts.started)
  stage.cloud.broken += [429, 503, 503, 503, 429]
  yield from stage.expect(process, 0)
  yield 'all failures were met', not stage.cloud.broken


def launcher_killed(stage):
  """A killed supervisor's successor adopts hosts, and replaces lost ones."""
  stage.hosts.program = 'sleep 60'
  stage.kill_launcher()
  stage.hosts.program = 'exit 0'
  stage.cloud.set_states('SUSPENDED')  # while nobody watches
  texts = 'going on with launch', 'preemptions 1'
  yield from stage.expect(stage.start_run(), 0, *texts, requests=2)


def nobody_watches(stage):
  """Without a supervisor, the hosts still delete themselves."""
  stage.kill_launcher()
  stage.wait_for(lambda: not stage.cloud.items)
  yield from stage.expect(stage.start('ls'), 0, 'nothing is rented.')


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


def bucket_refuses(stage):
  """Hosts that cannot write to the bucket are rented three times."""
  stage.cloud.refuse = lambda method, url: (
    403 * (method == 'POST' and f'name={stage.name}/' in url)  # of hosts
  )
  text = 'without a log, a status or a new step'
  yield from stage.expect(stage.start_run(), 1, text, requests=3)


def zone_silent(stage):
  """A zone that does not answer is neither empty nor left."""
  stage.hosts.program = 'sleep 60'
  process = stage.start_run()
  stage.wait_for(lambda: stage.hosts.started)
  stage.cloud.dark = {A}
  yield from stage.expect(stage.start('ls'), 1, f'{A} could not be asked')
  yield 'nothing is concluded', 'nothing is rented.' not in stage.text
  threading.Timer(20, setattr, (stage.cloud, 'dark', set())).start()
  stage.finish(stage.start('down', 'r'))
  stage.wait_for(lambda: not stage.cloud.dark)
  yield from stage.expect(stage.start('down', 'r'), 0)
  yield from stage.expect(process, 1)


def notes_damaged(stage):
  """`down` needs neither note, ledger nor status."""
  stage.hosts.program = 'sleep 60'
  stage.kill_launcher()
  for name in ('launch/ledger.json', 'status.json'):
    stage.cloud.write(f'gs://bkt/{stage.name}/{name}', '{"job": [')
  note = stage.environment['XDG_STATE_HOME'] + '/bert_jax/launch/r.json'
  pathlib.Path(note).write_text('')
  yield from stage.expect(stage.start('down', 'r'), 0, f'{note} is damaged')


def only_labelled(stage):
  """`down --all` touches nothing of others."""
  for name, label in (('theirs', 'owner'), ('old', 'bert-jax-run')):
    spec = {'nodeSpec': [{'nodeId': 'x', 'node': {'labels': {label: 'old'}}}]}
    stage.cloud.create(name, A, {'tpu': spec})
  stage.cloud.on_active = lambda *_: None
  yield from stage.expect(stage.start('down', '--all'), 0, requests=2)
  yield 'only ours is gone', list(stage.cloud.items) == [('theirs', A)]
  stage.cloud.items.clear()


# fmt: off
CYCLES = dict.fromkeys(PLAIN, play_plain) | {x.__name__: x for x in (
  preempted_twice, down_while_provisioning, busy, launcher_killed,
  nobody_watches, host_0_dies, bucket_refuses, zone_silent, notes_damaged,
  only_labelled,
)}
# fmt: on


def play(name, folder) -> bool:
  """Plays a cycle and prints what happened; returns whether all is right."""
  begin, cycle = time.monotonic(), CYCLES[name]
  with contextlib.ExitStack() as stack:
    stage = Stage(stack, name, folder)
    checks, cloud = list(cycle(stage)), stage.cloud
  alive = 1 + (cycle is only_labelled)
  checks += [('nothing left', not cloud.items)]
  checks += [('within the limit', cloud.rented < stage.limit + 20)]
  checks += [('never two alive', cloud.most_alive <= alive)]
  wrong = [name for name, holds in checks if not holds]
  acts = ', '.join(f'{act} in {zone}' for act, _, zone in cloud.history)
  seconds = time.monotonic() - begin
  print(f'{"FAIL" if wrong else "ok  "} {name} ({seconds:.0f} s)')
  print(f'     {cycle.__doc__}\n     {acts}; {cloud.rented:.0f} s of rent')
  for name in wrong:
    print(f'     NOT: {name}')
  print(stage.text * bool(wrong), end='', flush=True)
  return not wrong


def main() -> int:
  """Plays the cycles."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='names of cycles, separated by commas')
  only = parser.parse_args().only
  good = []
  for name in only.split(',') if only else CYCLES:
    with tempfile.TemporaryDirectory() as folder:
      good.append(play(name, folder))
  print(f'verdict: {"ok" if all(good) else "FAILED"}, {len(good)} cycles')
  return 0 if all(good) else 1


if __name__ == '__main__':
  sys.exit(main())
