"""Tests of reading texts from Parquet and Arrow."""

import collections
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax import errors
from bert_jax.corpus import sources
from tests.corpus.sources_test import read_pieces

_TEXTS = [f'Text {k}.\n\nIts end.' for k in range(5000)]


def _read(inputs, monkeypatch=None, room=None, **given):
  """Returns the paragraphs of all documents, and the counts."""
  if room:
    monkeypatch.setattr(sources, '_SMALLEST', room)
    monkeypatch.setattr(sources, '_LARGEST', room)
  pieces = sources.plan([str(x) for x in inputs], 'paragraphs', 'text')
  documents, counts, _ = read_pieces(pieces, 'paragraphs', **given)
  return [x.paragraphs for x in documents], counts, len(pieces)


def _write(path, texts=_TEXTS, kind='string', rows=700):
  column = pyarrow.array(texts, pyarrow.string())
  table = pyarrow.table(
    {
      'id': range(len(texts)),
      'text': column.dictionary_encode()
      if kind == 'dictionary'
      else column.cast(kind),
    }
  )
  if path.suffix == '.parquet':
    parquet.write_table(table, path, row_group_size=rows)
  else:
    new = ipc.new_file if path.suffix == '.feather' else ipc.new_stream
    with new(str(path), table.schema) as file:
      file.write_table(table, rows)
  return path


@pytest.mark.parametrize(
  'name', ['a.parquet', 'no_extension', 'a.arrow', 'a.feather']
)
@pytest.mark.parametrize('kind', ['string', 'large_string', 'dictionary'])
def test_texts_are_those_of_json(tmp_path, name, kind):
  texts = [*_TEXTS[:1500], None, '', 'Gödel\x00.\r\nLeft.']
  lines = tmp_path / 'a.jsonl'
  lines.write_text('\n'.join(json.dumps({'text': x}) for x in texts))
  path = _write(tmp_path / name, texts, kind)
  found = _read([path])
  assert found == _read([lines])
  assert found[0][-1] == ['Gödel.', 'Left.'] and len(found[0]) == 1501
  assert found[1]['empty_documents'] == 2


def test_pieces_of_any_size_share_the_row_groups(tmp_path, monkeypatch):
  path = _write(tmp_path / 'a.parquet', rows=70)
  whole, _, pieces = _read([path])
  assert (len(whole), pieces) == (5000, 1)
  for room in (1000, 3777):
    texts, _, pieces = _read([path], monkeypatch, room)
    assert texts == whole and pieces > 10


def test_bytes_that_are_not_utf8_are_counted_and_many_refused(tmp_path):
  def write(texts):
    column = pyarrow.array(texts, pyarrow.binary())
    wrong = pyarrow.StringArray.from_buffers(len(column), *column.buffers()[1:])
    table = pyarrow.table({'text': wrong})
    parquet.write_table(table, tmp_path / 'a.parquet')
    return [tmp_path / 'a.parquet']

  texts, counts, _ = _read(write([b'caf\xe9 au lait', b'tea']))
  assert texts == [['caf\ufffd au lait'], ['tea']]
  assert counts['invalid_utf8'] == 1
  with pytest.raises(errors.UserError, match='is not text in UTF-8'):
    _read(write([b'\xe9\xe8' * 200] * 99))


@pytest.mark.parametrize('name', ['a.parquet', 'a.arrow', 'a.feather'])
def test_another_column_or_a_cut_file_is_refused_in_one_line(tmp_path, name):
  path = _write(tmp_path / name)
  with pytest.raises(
    errors.UserError, match=r"no column 'id' of texts, but id, text; name the"
  ):
    _read([path], field='id')
  with pytest.raises(errors.UserError, match="no column 'body' of texts"):
    _read([path], field='body')
  path.write_bytes(path.read_bytes()[:-50_000])
  with pytest.raises(
    errors.UserError, match=f'cannot read .*{name}.*cut short'
  ):
    _read([path])


def test_a_saved_dataset_is_read_without_its_descriptions(tmp_path):
  folder = tmp_path / 'set' / 'train'
  folder.mkdir(parents=True)
  _write(folder / 'data-00000-of-00001.arrow', _TEXTS[:9])
  _write(folder / 'cache-1f.arrow', _TEXTS[:9])
  for path in ('set/dataset_dict', 'set/train/state', 'set/train/dataset_info'):
    (tmp_path / f'{path}.json').write_text('{"_data_files": []}')
  (folder / 'more.txt').write_text('Of the user.')
  texts, counts, _ = _read([tmp_path / 'set'])
  assert len(texts) == 10 and counts == collections.Counter()
