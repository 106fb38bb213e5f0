"""Trains in a bucket: the model of a disk, and hosts that share nothing else.

  python benchmarks/proofs/gcs.py

An emulator on this machine (fake-gcs-server) stands for Google Cloud Storage,
and two processes, each with its own cache and its own temporary folder, for
hosts. The data is prepared in the bucket. Compared are

* the smoke run in the bucket and on disk: last fingerprint, every file of the
  export;
* the global batches of two hosts and of one, byte for byte, and the losses of 20
  steps to a relative 1e-6;
* the same after one of the two hosts was killed, which must end the other, and
  one host alone resumed.

The exit code is 1 if something differs. `kill.py --storage=gs` kills a run in a
bucket at chosen moments. Takes about four minutes on two idle cores.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

import emulator
import hosts
import kill

from bert_jax.runtime import storage

BUCKET = f'gs://{emulator.BUCKET}'
KILL_AFTER, END_SECONDS = 8, 90
HOSTS = f'--config={hosts.CONFIG},steps={hosts.STEPS},checkpoint.every=4'


def start(scratch, count, *command):
  """Starts a command, once for each host, with nothing local in common."""
  envs = []
  for k in range(count):
    own = os.path.join(scratch, f'host{k}_of_{count}')
    envs.append({x: os.path.join(own, x) for x in ('TMPDIR', 'XDG_CACHE_HOME')})
    for folder in envs[-1].values():
      os.makedirs(folder, exist_ok=True)
  return hosts.start((count, 2 // count), *command, envs=envs)


def train(scratch, count, workdir, *more):
  command = ['-m', 'bert_jax.main', HOSTS, f'--workdir={workdir}', *more]
  return start(scratch, count, *command)


def check_smoke(scratch):
  """Compares the smoke run in the bucket with that on disk."""
  kill.ARGUMENTS = kill.ARGUMENTS[:1]
  disk, there = (
    kill.finish(workdir, os.path.join(scratch, output))
    for workdir, output in (
      (os.path.join(scratch, 'disk'), 'disk.out'),
      (f'{BUCKET}/smoke', 'bucket.out'),
    )
  )
  good = disk == there
  print(
    f'smoke on disk: fingerprint {disk["fingerprint"]}; in the bucket: '
    f'{there["fingerprint"]}; exports of {len(disk["export"])} files and '
    f'losses {"equal" if good else "DIFFER"}',
    flush=True,
  )
  return good


def check_batches(scratch, data):
  """Compares the global batches of one host and of two."""
  digests = []
  for count in (1, 2):
    script = os.path.join(os.path.dirname(__file__), 'hosts.py')
    found = start(scratch, count, script, f'--print_batches={data}')
    digests.append({text.split()[-1] for text in hosts.outputs(found)})
  good = len(digests[0]) == 1 and digests[0] == digests[1]
  print(
    f'batches of one host {min(digests[0])[:16]}, of two '
    f'{" ".join(sorted(x[:16] for x in digests[1]))}: '
    f'{"equal" if good else "DIFFER"}',
    flush=True,
  )
  return good


def check_hosts(scratch, data, whole):
  """Trains on two hosts; kills one, and resumes on one."""
  use = f'--config.data.dir={data}'
  hosts.outputs(train(scratch, 2, f'{BUCKET}/two', use))
  near, difference = hosts.compare(whole, hosts.losses(f'{BUCKET}/two'))
  print(f'two hosts: {difference}', flush=True)
  workdir = f'{BUCKET}/killed'
  processes = train(scratch, 2, workdir, use)
  # The log is uploaded before each checkpoint, the checkpoint comes after it.
  folder = f'{workdir}/checkpoints/{KILL_AFTER}'
  while not storage.exists(f'{folder}/commit_success.txt'):
    if any(process.poll() is not None for process in processes):
      hosts.outputs(processes)
      sys.exit(f'the run ended before step {KILL_AFTER}')
    time.sleep(0.05)
  processes[1].send_signal(signal.SIGKILL)
  begin = time.monotonic()
  try:
    text = processes[0].communicate(timeout=END_SECONDS)[0]
  except subprocess.TimeoutExpired:
    text = 'it did not end'
  seconds = time.monotonic() - begin
  for process in processes:
    process.kill()
    process.wait()
  ended = processes[0].returncode != 0 and seconds < END_SECONDS
  said = [x for x in text.splitlines() if x.startswith('error: ')]
  print(
    f'one of two killed: the other ended after {seconds:.0f} s: '
    f'{said[0][:160] if said else text[-160:]}',
    flush=True,
  )
  text = hosts.outputs(train(scratch, 1, workdir, use))[0]
  [resumed] = [x for x in text.splitlines() if x.startswith('resumed at')]
  same, difference = hosts.compare(whole, hosts.losses(workdir))
  print(f'then one host, {resumed}: {difference}', flush=True)
  return near and ended and same


def main():
  """Runs the proof."""
  argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  ).parse_args()
  with contextlib.ExitStack() as stack:
    scratch = stack.enter_context(tempfile.TemporaryDirectory())
    url = stack.enter_context(emulator.running())
    os.environ.update(emulator.environment(url))
    os.environ['XDG_CACHE_HOME'] = os.path.join(scratch, 'cache')
    good = check_smoke(scratch)
    hosts.outputs(train(scratch, 1, f'{BUCKET}/one'))
    data, whole = f'{BUCKET}/one/data', hosts.losses(f'{BUCKET}/one')
    good = check_batches(scratch, data) and good
    good = check_hosts(scratch, data, whole) and good
  print(f'verdict: {"ok" if good else "FAILED"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
