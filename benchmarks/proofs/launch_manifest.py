"""Compares launch/gke.py's JobSet with that of Google's xpk.

  pip install pyyaml, and xpk into an environment of its own
  python benchmarks/proofs/launch_manifest.py --xpk=XPK_ENVIRONMENT/bin/xpk

xpk writes its manifest in a dry run, offline. Prints every difference and why it
is there; the exit code is 1 if there is one that is not explained.
"""

import argparse
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from launch import commands, gke

COMMAND = '--config=configs/large.py', '--workdir=gs://bkt/large'
# Parts of paths, and why they differ.
WHY = (
  ('labels', 'each marks what it made; the queue is the one asked for'),
  ('podFailurePolicy', 'ours gives up after exit code 1 only; xpk after all '
   'codes below 127 that it was not told'),
  ('failurePolicy.rules', "ours ends at its deadline, too, and names its rule"),
  ('ttlSecondsAfterFinished', 'ours is kept until it is deleted'),
  ('activeDeadlineSeconds', 'our limit of hours'),
  ('completionMode', "ours says what is JobSet's default"),
  ('terminationGracePeriodSeconds', 'ours has a minute to save a checkpoint'),
  ('.command', 'xpk wraps the command in a shell; ours is started directly and '
   'gets the signals itself'),
  ('.name', 'names of the Job and of the container'),
  ('requests', 'ours says what Kubernetes derives from the limits'),
  ('ports', "ours names the ports of libtpu, as in Google's example"),
  ('gke-spot', 'ours chooses spot nodes; xpk leaves it to its cluster'),
  ('tolerations', 'ours tolerates spot nodes; that of google.com/tpu is added '
   'by GKE'),
  ('volume', 'xpk makes /dev/shm larger; bert_jax does not use it'),
  ('priorityClassName', 'a class that xpk makes in its clusters'),
  ('imagePullSecrets', 'xpk writes a placeholder'),
  ('schedulerName', 'xpk writes the default'),
  ('serviceAccountName', 'xpk writes an empty field'),
  ('annotations', 'xpk writes an empty field in pods'),
  ('.env', 'xpk writes an empty field'),
)  # fmt: skip


def flatten(value, path='') -> dict:
  """Returns {path: scalar} of nested data."""
  if isinstance(value, dict):
    items = value.items()
  elif isinstance(value, list):
    items = enumerate(value)
  else:
    return {path: value}
  found = {}
  for key, item in items:
    found |= flatten(item, f'{path}.{key}')
  return found


def read_ours() -> dict:
  """Returns the JobSet of launch/gke.py."""
  words = ['--name=large', '--image=img:1', '--topology=v6e-16', '--slices=2']
  checked = commands.Result(0, '{}')
  with contextlib.redirect_stdout(io.StringIO()) as out:
    gke.main([*words, '--spot', *COMMAND], lambda argv: checked)
  return yaml.safe_load(out.getvalue())


def read_theirs(xpk: str) -> dict:
  """Returns the JobSet of xpk."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'manifest.yaml')
    argv = [xpk, 'workload', 'create', '--dry-run', '--skip-validation']
    argv += ['--workload=large', '--cluster=c', '--project=p1', '--spot']
    argv += ['--project-number=1', '--zone=us-east5-b', '--tpu-type=v6e-16']
    argv += ['--num-slices=2', '--docker-image=img:1', '--max-restarts=50']
    argv += [f'--command=python -m bert_jax.main {" ".join(COMMAND)}']
    argv += [f'--output-manifest-file={path}']
    subprocess.run(argv, check=True, capture_output=True, cwd=folder)
    with open(path) as file:
      return yaml.safe_load(file)


def main() -> int:
  """Prints the differences."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--xpk', required=True, help="the program's path")
  ours = flatten(read_ours())
  theirs = flatten(read_theirs(parser.parse_args().xpk))
  same = [path for path in ours if ours[path] == theirs.get(path, object())]
  print(f'{len(same)} fields are equal, among them')
  for path in same:
    print(f'  {path} = {ours[path]}')
  unexplained = 0
  for path in sorted({*ours, *theirs} - {*same}):
    why = next((text for part, text in WHY if part in path), None)
    unexplained += why is None
    if 'values' in path and not path.endswith('values.0'):
      continue  # the rest of a list of exit codes
    print(f'{path}\n  ours {ours.get(path)!r}')
    print(f'  xpk  {str(theirs.get(path))[:70]!r}\n  {why or "UNEXPLAINED"}')
  print(f'verdict: {"ok" if not unexplained else "FAILED"}')
  return 1 if unexplained else 0


if __name__ == '__main__':
  sys.exit(main())
