"""Tests of reading tables: that no row and no column is lost."""

import bz2
import gzip
import tracemalloc

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import table_files


def read(tmp_path, content, name) -> table_files.Table:
  (tmp_path / name).write_text(content, encoding='utf-8', newline='')
  return table_files.read(str(tmp_path / name))


@pytest.mark.parametrize('name, comma', [('twice.csv', ','), ('a.tsv', '\t')])
def test_two_columns_of_one_name_are_refused(tmp_path, name, comma):
  content = '\ntext,text,label\nfirst,second,a\n'.replace(',', comma)
  with pytest.raises(errors.UserError, match="line 2 names .* columns 'text'"):
    read(tmp_path, content, name)


@pytest.mark.parametrize(
  'name, content, rows',
  [
    # Columns without a name may be several.
    ('x.csv', 'text,,\ncat,,\n', [(2, {'text': 'cat', '': ''})]),
    # An empty line is a row of a table of one column, of no other.
    *(
      (
        f'x.{kind}',
        end.join(['text', 'first', '', 'third', '', '']),
        [(i, {'text': x}) for i, x in enumerate(['first', '', 'third', ''], 2)],
      )
      for kind in ('csv', 'tsv')
      for end in ('\n', '\r\n')
    ),
    ('x.csv', 'text,label\n\ncat,a\n\n', [(3, {'text': 'cat', 'label': 'a'})]),
    ('x.tsv', 'text\tlabel\n\ncat\ta\n', [(3, {'text': 'cat', 'label': 'a'})]),
    *(
      (
        'x.csv',
        f'a,b{end}1,"x{end}y"{end}2,z{end}',
        [(2, {'a': '1', 'b': f'x{end}y'}), (4, {'a': '2', 'b': 'z'})],
      )
      for end in ('\n', '\r\n', '\r')
    ),
    ('x.jsonl', '{"a": 1}\n{"b": 2}\n', [(1, {'a': 1}), (2, {'b': 2})]),
    ('x.json', '\n{"a": 1}\n{"b": 2}\n', [(2, {'a': 1}), (3, {'b': 2})]),
    ('x.json', '[{"a": 1},\n {"b": [2]}]', [(1, {'a': 1}), (2, {'b': [2]})]),
    ('x.ndjson', '[{"a": {"b": {"c": 1}, "d": {}}}]', [(1, {'a.b.c': 1, 'a.d': {}})]),
    ('x.txt', 'a\t b\n1\t"2\n', [(2, {'a': '1', 'b': '"2'})]),
    # A field may be as long as a book.
    ('x.csv', f'a,b\n"{"c, " * 50_000}",d\n', [(2, dict(a='c, ' * 50_000, b='d'))]),
  ],
)  # fmt: skip
def test_no_row_and_no_column_is_lost(tmp_path, name, content, rows):
  table = read(tmp_path, content, name)
  assert table.rows == rows
  assert table.names == tuple(dict.fromkeys(x for _, row in rows for x in row))


@pytest.mark.parametrize('name', ['x.csv', 'x.tsv', 'x.jsonl', 'x.csv.gz'])
def test_what_is_not_utf_8_is_named_by_its_line(tmp_path, name):
  path, content = tmp_path / name, b'a\n' * 20_000 + b'\xe9t\xe9\na\n'
  if name == 'x.jsonl':
    content = content.replace(b'a', b'{}')
  path.write_bytes(gzip.compress(content) if 'gz' in name else content)
  for read in (table_files.read, table_files.read_text):
    with pytest.raises(errors.UserError, match=r'in line 20001 \(byte 0xe9\)'):
      read(str(path))
  wide = 'a\nb\n'.encode('utf-16')
  path.write_bytes(gzip.compress(wide) if 'gz' in name else wide)
  with pytest.raises(errors.UserError, match='is UTF-16; convert it'):
    table_files.read(str(path))


@pytest.mark.parametrize('name', ['x.csv.bz2', 'x.csv.gz'])
def test_a_damaged_archive_is_a_mistake_and_no_ill_disk(tmp_path, name):
  compress = bz2.compress if name.endswith('bz2') else gzip.compress
  raw = compress(b'text,label\n' + b't,a\n' * 1000)
  (tmp_path / name).write_bytes(raw[:-8] + bytes(8))  # with the checksum
  with pytest.raises(
    errors.UserError, match=f'{name}: .*; is this the right p'
  ):
    table_files.read(str(tmp_path / name))


def test_a_table_is_read_without_a_second_copy_of_it(tmp_path):
  line = 'word ' * 200
  path = tmp_path / 'long.tsv'
  path.write_text('text\tlabel\n' + f'{line}\ta\n' * 5000)
  table_files.read(str(path))
  tracemalloc.start()
  rows = table_files.read(str(path)).rows
  kept, most = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(rows) == 5000 and most < 1.1 * kept
