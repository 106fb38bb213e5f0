"""The archive of the code, and the versions in it."""

import hashlib
import io
import os
import subprocess
import tarfile

import pytest

from bert_jax import errors
from launch import archive


@pytest.fixture
def tree(tmp_path):
  """Returns a small clone, with files that git does not track."""
  for name in ('bert_jax', 'configs', 'launch'):
    (tmp_path / name / '__pycache__').mkdir(parents=True)
    (tmp_path / name / 'main.py').write_text(name)
    (tmp_path / name / '__pycache__' / 'x.pyc').write_bytes(b'x')
  (tmp_path / 'setup.cfg').write_text('')
  for words in (['init', '--quiet'], ['add', '*.py', 'setup.cfg']):
    subprocess.run(['git', '-C', tmp_path, *words], check=True)
  (tmp_path / 'configs' / '.env').write_text('TOKEN=1')
  return tmp_path


def test_archive_has_what_git_tracks_and_changes_with_it_alone(tree):
  packed, digest = archive.make(str(tree))
  assert digest == hashlib.sha256(packed).hexdigest()
  with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
    assert tar.getnames() == [
      *('bert_jax/main.py', 'configs/main.py', 'constraints.txt'),
      *('launch/main.py', 'setup.cfg'),
    ]
  os.utime(tree / 'setup.cfg', (0, 0))
  assert archive.make(str(tree)) == (packed, digest)
  (tree / 'bert_jax/main.py').write_text('changed')
  assert archive.make(str(tree))[1] != digest
  (tree / '.git').rename(tree / 'elsewhere')
  with pytest.raises(errors.UserError, match='not a clone of bert_jax'):
    archive.make(str(tree))


def test_config_must_be_among_the_files(tree, monkeypatch):
  monkeypatch.chdir(tree / 'configs')
  config = archive.check_config('main.py:smoke,a=1', str(tree))
  assert config == 'configs/main.py:smoke,a=1'
  (tree / 'configs/new.py').write_text('')
  for path in ('new.py', '/etc/passwd'):
    with pytest.raises(errors.UserError, match='not among the files'):
      archive.check_config(path, str(tree))
