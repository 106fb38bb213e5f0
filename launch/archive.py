"""The code of a run as an archive that is named by its SHA-256."""

import gzip
import hashlib
import io
import os
import tarfile

from bert_jax import errors

# What installs and runs bert_jax.
_PARTS = (
  'LICENSE',
  'README.md',
  'bert_jax',
  'configs',
  'launch',
  'pyproject.toml',
  'setup.cfg',
)


def make(root: str) -> tuple[bytes, str]:
  """Packs the files of a source tree.

  The same files give the same bytes, whoever packs them and when.

  Args:
    root: the root of the tree.

  Returns:
    (the bytes of a `.tar.gz`, their SHA-256 in hexadecimal).
  """
  raw = io.BytesIO()
  with tarfile.open(fileobj=raw, mode='w', format=tarfile.PAX_FORMAT) as tar:
    for path in list_files(root):
      with open(os.path.join(root, path), 'rb') as file:
        data = file.read()
      entry = tarfile.TarInfo(path)
      entry.size, entry.mode = len(data), 0o644
      tar.addfile(entry, io.BytesIO(data))
  packed = gzip.compress(raw.getvalue(), mtime=0)
  return packed, hashlib.sha256(packed).hexdigest()


def list_files(root: str) -> list[str]:
  """Returns the sorted paths of the files to pack, relative to the root.

  Raises:
    errors.UserError: if the tree is not that of bert_jax.
  """
  found = []
  for part in _PARTS:
    path = os.path.join(root, part)
    if not os.path.exists(path):
      raise errors.UserError(f'{path} is missing; run this from a full tree.')
    if os.path.isfile(path):
      found.append(part)
    for folder, folders, names in os.walk(path):
      folders[:] = [name for name in folders if name != '__pycache__']
      found += [
        os.path.relpath(os.path.join(folder, name), root)
        for name in names
        if not name.endswith('.pyc')
      ]
  return sorted(found)


def check_config(root: str, config: str) -> str:
  """Returns `--config` with a path from the root, if the archive has its file.

  Args:
    root: the root of the tree.
    config: such as `configs/large.py:smoke`, from the current directory.

  Raises:
    errors.UserError: if hosts would not find it.
  """
  path, colon, rest = config.partition(':')
  inside = os.path.relpath(os.path.abspath(path), root)
  if inside not in list_files(root):
    raise errors.UserError(
      f'--config={path} is not among the files that are sent to the hosts; '
      f'give a file in {os.path.join(root, "configs")}.'
    )
  return inside + colon + rest
