"""The code of a run, and the versions that it needs, as one archive.

Hosts install it, and images are built from it.
"""

import gzip
import hashlib
import importlib.metadata
import io
import os
import subprocess
import sys
import tarfile

from bert_jax import errors

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PARTS = ('LICENSE', 'README.md', 'bert_jax', 'configs', 'launch')
_PARTS += ('pyproject.toml', 'setup.cfg')


def run(*_) -> int:
  """Prints the archive."""
  sys.stdout.buffer.write(make()[0])
  return 0


def make(root: str = ROOT) -> tuple[bytes, str]:
  """Returns (a `.tar.gz`, its SHA-256), which are equal for equal files."""
  raw, files = io.BytesIO(), {'constraints.txt': list_constraints().encode()}
  for path in list_files(root):
    with open(os.path.join(root, path), 'rb') as file:
      files[path] = file.read()
  with tarfile.open(fileobj=raw, mode='w', format=tarfile.PAX_FORMAT) as tar:
    for path, data in sorted(files.items()):
      entry = tarfile.TarInfo(path)
      entry.size, entry.mode = len(data), 0o644
      tar.addfile(entry, io.BytesIO(data))
  packed = gzip.compress(raw.getvalue(), mtime=0)
  return packed, hashlib.sha256(packed).hexdigest()


def list_constraints() -> str:
  """Returns name==version of all releases that are installed here, by line.

  With these, neither a new release nor another host changes a run.
  """
  lines = set()
  for item in importlib.metadata.distributions():
    local = item.read_text('direct_url.json') or '+' in item.version
    # That of Python 3.11 cannot be imported by the newer one of the image.
    if not local and item.name not in ('bert_jax', 'setuptools'):
      lines.add(f'{item.name}=={item.version}\n')
  return ''.join(sorted(lines))


def list_files(root: str) -> list[str]:
  """Returns the paths to pack: what git tracks, so that no secret is sent."""
  argv = ['git', '-C', root, 'ls-files', '-z', '--', *_PARTS]
  done = subprocess.run(argv, capture_output=True)
  paths = sorted(filter(None, done.stdout.decode().split('\0')))
  if 'setup.cfg' not in paths:
    raise errors.UserError(
      f'{root} is not a clone of bert_jax: only files of git are sent to hosts.'
    )
  return [path for path in paths if os.path.exists(os.path.join(root, path))]


def check_config(config: str, root: str = ROOT) -> str:
  """Returns `--config` with a path from the root, if hosts have that file."""
  path, colon, rest = config.partition(':')
  inside = os.path.relpath(os.path.abspath(path), root)
  if inside not in list_files(root):
    raise errors.UserError(
      f'--config={path} is not among the files that are sent to the hosts; '
      f'give one in {os.path.join(root, "configs")} that git tracks (git add).'
    )
  return inside + colon + rest
