import bz2
import errno
import gzip
import hashlib
import io
import lzma

import fsspec
import pyarrow
import pytest

from bert_jax import errors
from bert_jax.corpus import text_files

COMPRESS = {
  'gz': gzip.compress,
  'bz2': bz2.compress,
  'xz': lzma.compress,
  'zst': lambda raw: pyarrow.compress(raw, 'zstd', asbytes=True),
}


def _lines(raw, *bounds):
  return list(text_files.read_lines(io.BytesIO(raw), *bounds))


@pytest.mark.parametrize('raw', [b'ab\n\nc\nde', b'ab\n\nc\nde\n', b'\n', b'x'])
def test_a_file_is_cut_where_lines_begin(raw):
  begins = [0, *(k + 1 for k, c in enumerate(raw) if c == 10)]
  for at in range(len(raw) + 1):
    found = text_files.find_line(io.BytesIO(raw), at, bool)
    assert found == min([x for x in begins if x >= at], default=len(raw))
    assert _lines(raw, 0, found) + _lines(raw, found, len(raw)) == _lines(raw)
  assert text_files.find_line(io.BytesIO(raw), 1, b'\n'.__eq__) == (
    3 if b'\n\n' in raw else len(raw)
  )


@pytest.mark.parametrize('word', [b'word ', 'длинный '.encode(), '漢'.encode()])
def test_long_lines_come_in_parts_between_characters(word):
  raw = word * (3_000_000 // len(word))
  parts = _lines(raw)
  assert b''.join(parts) == raw
  assert len(parts) > 2 and max(map(len, parts)) <= 2 << 20
  assert all(len(x) % len(word) == 0 for x in parts)


@pytest.mark.parametrize('kind', COMPRESS)
def test_compressed_files_read_like_plain_ones(tmp_path, kind):
  path = str(tmp_path / f'a.txt.{kind}')
  with open(path, 'wb') as file:  # two archives, one after the other
    file.write(COMPRESS[kind](b'One.\n' * 1000) + COMPRESS[kind](b'Two.\n'))
  with text_files.open_text(path) as file:
    assert file.read() == b'One.\n' * 1000 + b'Two.\n'
  assert text_files.read_head(path).startswith(b'One.\nOne.')
  assert text_files.is_compressed(path)
  assert text_files.get_extension(path) == '.txt'


def test_paths_globs_and_folders(tmp_path):
  for name in ('b.txt', 'a.txt', 'c.md', 'd/z.txt', '.hidden', 'a[1].txt'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(name)

  def names(given):
    return [p[len(str(tmp_path)) + 1 :] for p in text_files.expand(str(given))]

  assert names(tmp_path / '?.txt') == ['a.txt', 'b.txt']
  assert names(tmp_path / 'a[1].txt') == ['a[1].txt']
  everything = ['a.txt', 'a[1].txt', 'b.txt', 'c.md', 'd/z.txt']
  assert names(tmp_path) == names(tmp_path / '*') == everything
  assert names(tmp_path / '**' / 'z.txt') == ['d/z.txt']
  for missing in ('x*', 'nothing'):
    with pytest.raises(errors.UserError, match='names no file'):
      text_files.expand(str(tmp_path / missing))


def test_addresses_are_opened_like_paths():
  store = fsspec.filesystem('memory')
  for name in ('a.txt', 'b.txt', 'deep/c.txt.gz'):
    raw = name.encode()
    store.pipe(f'/text/{name}', gzip.compress(raw) if 'gz' in name else raw)
  assert text_files.expand('memory://text/*.txt') == [
    'memory:///text/a.txt',
    'memory:///text/b.txt',
  ]
  found = text_files.expand('memory://text')
  assert [p.rsplit('/', 1)[1] for p in found] == ['a.txt', 'b.txt', 'c.txt.gz']
  assert (
    text_files.compute_sha256(found[0]) == hashlib.sha256(b'a.txt').hexdigest()
  )
  with text_files.open_text(found[2]) as file:
    assert file.read() == b'deep/c.txt.gz'
  with text_files.open_text(found[0]) as file:
    assert list(text_files.read_lines(file)) == [b'a.txt']


def test_what_cannot_be_opened_is_an_error_that_says_why(tmp_path):
  with pytest.raises(errors.UserError, match='such file.*; check the path and'):
    text_files.read_head(str(tmp_path / 'a.conll'))
  with pytest.raises(errors.UserError, match='names no file'):
    text_files.expand('memory://nowhere/*.txt')
  with pytest.raises(errors.UserError, match='Protocol not known'):
    text_files.expand('nosuch://bucket/a.txt')
  # Opens, and answers EIO to whoever reads its start.
  (tmp_path / 'a.txt').symlink_to('/proc/self/mem')
  path = str(tmp_path / 'a.txt')
  with pytest.raises(OSError, match=f'{path}: Input/output error'):
    text_files.read_head(path)


@pytest.mark.parametrize('error', [OSError(errno.EIO, 'ill'), OSError('ill')])
def test_a_disk_or_network_that_fails_is_no_damage(tmp_path, error):
  (tmp_path / 'a').write_bytes(b'{"text": "One."}')
  assert not text_files.is_damage(error, str(tmp_path / 'a'))
  (tmp_path / 'a').write_bytes(bz2.compress(b'One.'))
  is_plain = error.errno is None
  assert text_files.is_damage(error, str(tmp_path / 'a')) == is_plain


def test_a_head_that_cannot_be_read_is_no_shorter_one(tmp_path, monkeypatch):
  class Failing(io.BytesIO):
    def readline(self, size=-1):
      raise OSError(errno.EIO, 'ill')

  monkeypatch.setattr(text_files.storage, 'open_binary', Failing)
  with pytest.raises(OSError, match='ill'):
    text_files.read_head(b'{"text": "One."}')
