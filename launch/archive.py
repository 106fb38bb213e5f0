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
  found = gzip.compress(raw.getvalue(), mtime=0)
  return found, hashlib.sha256(found).hexdigest()


def list_constraints() -> str:
  """Returns name==version of all releases that are installed here, by line.

  With these, neither a new release nor another host changes a run.
  """
  found = set()
  for item in importlib.metadata.distributions():
    local = item.read_text('direct_url.json') or '+' in item.version
    if not local and item.name != 'bert_jax':
      # That of Python 3.11 cannot be imported by the newer one of the image.
      old = item.name == 'setuptools' and sys.version_info < (3, 12)
      only = ' ; python_version < "3.12"' if old else ''
      found.add(f'{item.name}=={item.version}{only}\n')
  return ''.join(sorted(found))


def list_files(root: str) -> list[str]:
  """Returns the paths to pack: what git tracks, so that no secret is sent."""
  argv = ['git', '-C', root, 'ls-files', '-z', '--', *_PARTS]
  done = subprocess.run(argv, capture_output=True)
  found = sorted(filter(None, done.stdout.decode().split('\0')))
  if done.returncode or not {'setup.cfg', 'bert_jax/main.py'} <= {*found}:
    raise errors.UserError(
      f'{root} is not a clone of bert_jax, and only files that git tracks are '
      'sent to the hosts; run this from a clone.'
    )
  real = os.path.realpath(root)
  for path in found:
    if os.path.realpath(os.path.join(root, path)) != os.path.join(real, path):
      raise errors.UserError(f'{path} is behind a link; put the file there.')
  return [path for path in found if os.path.exists(os.path.join(root, path))]


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
