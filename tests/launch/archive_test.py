"""The archive of the code."""

import hashlib
import io
import os
import shutil
import tarfile

import pytest

from bert_jax import errors
from launch import archive, start


def _make_tree(root):
  for name in ('bert_jax', 'configs', 'launch'):
    (root / name / '__pycache__').mkdir(parents=True)
    (root / name / f'{name}.py').write_text(name)
    (root / name / '__pycache__' / 'x.pyc').write_bytes(b'x')
  for name in ('LICENSE', 'README.md', 'pyproject.toml', 'setup.cfg'):
    (root / name).write_text(name)


def test_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path):
  first, second = tmp_path / 'first', tmp_path / 'second'
  _make_tree(first)
  shutil.copytree(first, second)
  os.utime(second / 'setup.cfg', (0, 0))
  packed, digest = archive.make(str(first))
  assert archive.make(str(second)) == (packed, digest)
  assert digest == hashlib.sha256(packed).hexdigest()
  (second / 'bert_jax/bert_jax.py').write_text('changed')
  assert archive.make(str(second))[1] != digest


def test_archive_has_sources_and_configs_but_no_caches(tmp_path):
  _make_tree(tmp_path)
  packed, _ = archive.make(str(tmp_path))
  with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
    names = tar.getnames()
  assert 'configs/configs.py' in names and 'setup.cfg' in names
  assert not [name for name in names if name.endswith('.pyc')]


def test_tree_of_this_package_can_be_installed_from_the_archive():
  files = archive.list_files(start.ROOT)
  assert {'bert_jax/main.py', 'pyproject.toml', 'launch/worker.sh'} <= {*files}
  assert not [path for path in files if path.startswith(('tests', '.git'))]


def test_config_must_be_among_the_files(tmp_path, monkeypatch):
  _make_tree(tmp_path)
  monkeypatch.chdir(tmp_path / 'configs')
  found = archive.check_config(str(tmp_path), 'configs.py:smoke,a=1')
  assert found == 'configs/configs.py:smoke,a=1'
  with pytest.raises(errors.UserError, match='not among the files'):
    archive.check_config(str(tmp_path), '/etc/passwd')
