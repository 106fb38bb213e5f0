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
import time

import fake_cloud

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
A, B = 'us-east5-b', 'europe-west4-b'
LIMIT = 900  # seconds for one command


class Stage:
  """One cycle: its cloud, its hosts, its folder, and what was printed."""

  def __init__(self, stack, name, folder):
    self.name, self.text, self.limit = name, '', 600.0
    self.workdir = f'gs://bkt/{name}'
    self._stack, self._folder, self._homes = stack, folder, []
    self.program, self.chosen = 'sleep 2; exit 0', None  # all hosts, or some
    self.started = 0  # resources whose hosts were started
    self.cloud = fake_cloud.Cloud()
    port = stack.enter_context(fake_cloud.serve(self.cloud.answer))
    self.environment = {
      **fake_cloud.make_environment(port, folder),
      'XDG_STATE_HOME': f'{folder}/state',
      'BERT_JAX_LAUNCH_PERIOD': '0.5',
      'BERT_JAX_TICK': '0.05',
      'PYTHONUNBUFFERED': '1',
    }
    stack.callback(self.kill_hosts)
    self.cloud.on_active, self.cloud.on_gone = self.start_hosts, self.kill_hosts

  def start_hosts(self, name, zone, body, arguments=lambda n: ''):
    """Runs the startup script on each host, as a process of this machine."""
    self.started += 1
    told = fake_cloud.read_metadata(body)
    every = range(int(fake_cloud.read_job(told)['hosts']))
    for n in every if self.chosen is None else self.chosen:
      home = f'{self._folder}/hosts/{name}-{self.started}-{n}'
      self._homes.append(home)
      own = {'bert-jax-job': told['bert-jax-job'] + arguments(n)}
      own = {**told, **own, 'agent-worker-number': str(n)}
      where = self._stack, home, self.environment
      fake_cloud.start_host(*where, own, self.program)

  def kill_hosts(self, *_):
    """Ends all processes of the hosts, as when machines vanish."""
    homes, self._homes = self._homes, []
    for _ in range(3):  # also what was started meanwhile
      for process in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
          text = (process / 'environ').read_bytes().decode(errors='replace')
          if any(f'BERT_JAX_HOME={home}\0' in text for home in homes):
            os.kill(int(process.name), signal.SIGKILL)

  def start(self, *words: str) -> subprocess.Popen:
    more = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
    more |= {'cwd': ROOT, 'env': {**os.environ, **self.environment}}
    argv = [sys.executable, f'{ROOT}/launch/tpu.py', *words]
    return subprocess.Popen(argv, text=True, **more)

  def start_run(self, *more: str) -> subprocess.Popen:
    return self.start(
      *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
      *(f'--workdir={self.workdir}', '--no_preflight'),
      *('--topology=v5litepod-4', f'--zone={A},{B}', *more),
    )

  def expect(self, process, code: int, *texts: str, requests=1):
    """Waits for a command; yields what there is to check then."""
    self.text += process.communicate(timeout=LIMIT)[0]
    yield f'exit code {code} of {process.args[2]}', process.returncode == code
    for text in texts:
      yield f'"{text}" is printed', text in self.text
    found = sum(act == 'create' for act, _, _ in self.cloud.history)
    yield f'{requests} requests', found == requests

  def wait_for(self, holds):
    deadline = time.monotonic() + LIMIT
    while not holds():
      assert time.monotonic() < deadline, self.text
      time.sleep(0.05)

  def kill_launcher(self, *more: str):
    """Starts a run and kills the launcher when hosts run."""
    process = self.start_run(*more)
    url, none = f'{self.workdir}/launch/ledger.json', (b'',)
    self.wait_for(lambda: b'"active"' in self.cloud.objects.get(url, none)[0])
    process.kill()
    self.text += process.communicate()[0]


OK = 'sleep 2; exit 0'
LOST = (*fake_cloud.HAPPY, *['ACTIVE'] * 9, 'SUSPENDED')
FULL = 'FAILED: There is no more capacity in the zone; try another one.'
ZERO = "FAILED: Quota 'TPUV5sPerProject' exceeded. Limit: 0 in region"
# {cycle: (the hosts' program, states of the first requests or an argument, exit
# code, what is printed, requests)}. max_usd: 4 chips x $1.20 an hour, so $0.02
# are 15 seconds.
PLAIN = {
  'happy': (OK, '--yes', 0, '[worker 0] ', 1),
  'zone_full': (OK, [(FULL,)], 0, f'request 2: asking for them in {B}', 2),
  'structural': (OK, [(ZERO,)], 1, 'ended     structural: Quota', 1),
  'max_usd': ('sleep 600', '--max_usd=0.02', 1, 'ended     out of time', 1),
  'preempted_twice': ('sleep 20', [LOST, LOST], 0, 'preemptions 2', 3),
}


def play_plain(stage):
  stage.program, more, code, text, requests = PLAIN[stage.name]
  stage.limit = 15.0 if stage.name == 'max_usd' else stage.limit
  if not isinstance(more, str):
    stage.cloud.script = {(A, n): states for n, states in enumerate(more)}
    more = '--yes'
  yield from stage.expect(stage.start_run(more), code, text, requests=requests)


def down_while_provisioning(stage):
  """`down` waits for what cannot be deleted, and the supervisor ends."""
  stage.cloud.script[A, 0] = (*['PROVISIONING'] * 30, 'ACTIVE')
  process = stage.start_run()
  stage.wait_for(lambda: stage.cloud.history)
  texts = 'nothing is left.', 'cannot be deleted yet'
  yield from stage.expect(stage.start('down', stage.workdir), 0, *texts)
  yield 'no deletion tried', not stage.cloud.refused
  yield from stage.expect(process, 1, 'ended     stopped')


def single_looks(stage):
  """Looks by commands of their own replace lost hosts, and end the launch."""
  stage.program, code = 'sleep 60', 75
  stage.kill_launcher()
  stage.program = 'exit 0'
  stage.cloud.set_states('SUSPENDED')
  while code == 75:
    process = stage.start('tick', stage.workdir)
    stage.text += process.communicate()[0]
    code = process.returncode
  yield 'exit code 0', code == 0
  text = 'preemptions 1'
  yield from stage.expect(
    stage.start('tick', stage.workdir), 0, text, requests=2
  )


def nobody_watches(stage):
  """Without a launcher and host 0, the hosts delete themselves."""
  stage.program, stage.chosen = 'exit 75', (1, 2, 3)
  stage.kill_launcher('--topology=v5litepod-16')
  stage.wait_for(lambda: not stage.cloud.items)
  (end,) = (x for x in stage.cloud.objects if x.endswith('crashed-1'))
  yield 'the reason is known', 'reason=crashed' in stage.cloud.read(end)
  yield from stage.expect(stage.start('ls'), 0, 'nothing is rented.')


CYCLES = dict.fromkeys(PLAIN, play_plain)
for _cycle in (down_while_provisioning, single_looks, nobody_watches):
  CYCLES[_cycle.__name__] = _cycle


def play(name, folder) -> bool:
  """Plays a cycle and prints what happened; returns whether all is right."""
  begin, cycle = time.monotonic(), CYCLES[name]
  with contextlib.ExitStack() as stack:
    stage = Stage(stack, name, folder)
    checks, cloud = list(cycle(stage)), stage.cloud
  checks += [('nothing left', not cloud.items)]
  checks += [('within the limit', cloud.rented < stage.limit + 20)]
  checks += [('never two alive', cloud.most_alive <= 1)]
  wrong = [name for name, holds in checks if not holds]
  acts = ', '.join(f'{act} in {zone}' for act, _, zone in cloud.history)
  seconds = time.monotonic() - begin
  print(f'{"FAIL" if wrong else "ok  "} {name} ({seconds:.0f} s)')
  print(f'     {acts}; {cloud.rented:.0f} s of rent')
  for name in wrong:
    print(f'     NOT: {name}')
  print(stage.text * bool(wrong), end='', flush=True)
  return not wrong


def main(about: str) -> int:
  """Plays the cycles that the command names, by default all of `CYCLES`."""
  parser = argparse.ArgumentParser(description=about.splitlines()[0])
  parser.add_argument('--only', help='names of cycles, separated by commas')
  only, good = parser.parse_args().only, []
  for name in only.split(',') if only else CYCLES:
    with tempfile.TemporaryDirectory() as folder:
      good.append(play(name, folder))
  print(f'verdict: {"ok" if all(good) else "FAILED"}, {len(good)} cycles')
  return 0 if all(good) else 1


if __name__ == '__main__':
  sys.exit(main(__doc__))
