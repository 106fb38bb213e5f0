"""Checks the objects of launch/gke.py, and compares its JobSet with xpk's.

  pip install pyyaml jsonschema, and xpk into an environment of its own
  python benchmarks/proofs/launch_manifest.py --kueue=FOLDER \
    --xpk=XPK_ENVIRONMENT/bin/xpk

FOLDER has Kueue's config/components/crd/bases, or the files of ClusterQueue,
LocalQueue and ResourceFlavor from it: each object must follow the schema of its
kind strictly, and the same object with a misspelt field must not. xpk writes its
manifest in a dry run, offline; every difference is printed with its reason. The
exit code is 1 after a violation, or a difference that is not explained.
"""

import argparse
import contextlib
import glob
import io
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import crd_schema
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


def read_ours(*more: str) -> list[dict]:
  """Returns the objects of launch/gke.py; the JobSet is the last."""
  words = ['--name=large', '--image=img:1', '--topology=v6e-16', '--slices=2']
  checked = commands.Result(0, '{}')
  with contextlib.redirect_stdout(io.StringIO()) as out:
    gke.main([*words, '--spot', *more, *COMMAND], lambda argv: checked)
  return [*yaml.safe_load_all(out.getvalue())]


def check_queues(folder: str) -> int:
  """Checks Kueue's objects by its definitions; returns how many are wrong."""
  check = crd_schema.read(sorted(glob.glob(os.path.join(folder, '*.yaml'))))
  wrong = 0
  *queues, _ = read_ours('--queue=tpus', '--quota=32')
  for value in queues:
    found, tried = check(value), [*misspell(value['spec'])]
    missed = [x for x, spec in tried if not check({**value, 'spec': spec})]
    wrong += bool(found or missed)
    print(f'{value["kind"]}, {value["apiVersion"]}: {found or "ok"}')
    print(f'  {len(tried)} fields, misspelt in turn; not refused: {missed}')
  return wrong


def misspell(value) -> Iterator[tuple[str, Any]]:
  """Yields each named field, and a copy of nested data that misspells it."""
  if isinstance(value, list):
    items = enumerate(value)
  else:
    items = value.items() if isinstance(value, dict) else ()
  for key, item in items:
    if isinstance(value, dict):
      yield key, {f'{k}x' if k == key else k: x for k, x in value.items()}
    if key == 'nodeLabels':
      continue  # labels may have any name
    for field, changed in misspell(item):
      copied = value.copy()
      copied[key] = changed
      yield field, copied


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


def compare(xpk: str) -> int:
  """Prints what xpk's JobSet has otherwise; returns how much is unexplained."""
  [ours] = map(flatten, read_ours())
  theirs = flatten(read_theirs(xpk))
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
  return unexplained


def main() -> int:
  """Does what is asked for, and prints a verdict."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--kueue', metavar='FOLDER', help='its definitions')
  parser.add_argument('--xpk', metavar='PROGRAM', help='its path')
  given = parser.parse_args()
  if not (given.kueue or given.xpk):
    parser.error('give --kueue=FOLDER, --xpk=PROGRAM, or both')
  failed = check_queues(given.kueue) if given.kueue else 0
  failed += compare(given.xpk) if given.xpk else 0
  print(f'verdict: {"ok" if not failed else "FAILED"}')
  return 1 if failed else 0


if __name__ == '__main__':
  sys.exit(main())
