"""Tests of reading texts in fields of JSON, Parquet, Arrow and TFDS."""

import collections
import io
import json

import pyarrow
import pytest
from pyarrow import ipc, parquet

from bert_jax import errors
from bert_jax.corpus import records, sources, text_files
from tests import tfds_sets
from tests.corpus.sources_test import read_groups
from tests.corpus.text_files_test import COMPRESS

# JSON.


def _read_json(raw, layout='paragraphs', counts=None):
  """Returns the paragraphs of documents in JSON."""
  counts = collections.Counter() if counts is None else counts
  values = records.read_json(text_files.read_lines(io.BytesIO(raw)))
  documents = records.make_json_documents(
    values, 'x.jsonl', 0, 'text', layout, counts
  )
  return [x.paragraphs for x in documents]


@pytest.mark.parametrize(
  'form',
  [
    *('{}\n\n{}\n{}', '[{},{},\n{}]', '{}\n{}{}', '{},\n{},\n{},\n'),
    '\ufeff [\n{}, {}, {} ]',
  ],
)
@pytest.mark.parametrize('indent', [None, 2])
def test_objects_come_in_any_form(form, indent):
  values = [{'id': {'ä': [1]}, 'text': text} for text in ('One.\nTwo.', None)]
  values.append({'text': 'Thrée.' * 9, 'more': [[k] for k in range(99)]})
  texts = (json.dumps(x, indent=indent, ensure_ascii=False) for x in values)
  raw = form.format(*texts).encode()
  assert _read_json(raw) == [['One.', 'Two.'], [], ['Thrée.' * 9]]


@pytest.mark.parametrize(
  'line', ['{"body": "x"}', '5', '{"text": 1}', '{', 'x']
)
def test_what_is_no_object_with_a_text_is_named_by_its_place(line):
  raw = b'{"text": "One."}\n' + line.encode()
  with pytest.raises(
    errors.UserError, match=r'x.jsonl, number 2 from byte 0 on, is'
  ):
    _read_json(raw)


def test_an_object_is_read_up_to_a_limit(monkeypatch):
  text = 'word ' * 500_000
  raw = json.dumps({'text': text}).encode() + b'\n{"text": "Next."}'
  assert _read_json(raw) == [[text.strip()], ['Next.']]
  monkeypatch.setattr(records, '_LONGEST', 1 << 20)
  with pytest.raises(errors.UserError, match='number 1 from'):
    _read_json(raw)


def test_many_lines_of_an_object_take_no_quadratic_time():
  raw = json.dumps(
    {'text': 'One.', 'x': [[k] for k in range(20_000)]}, indent=1
  )
  assert _read_json(raw.encode()) == [['One.']]


def test_surrogates_and_controls_are_cleaned_and_counted():
  raw = b'{"text": "a\\ud800b\\u0000\xe9"}\n'
  counts = collections.Counter()
  assert _read_json(raw, counts=counts) == [['a\ufffdb\ufffd']]
  assert counts == {'invalid_utf8': 2, 'control_characters': 1}


def test_only_what_wikiextractor_wrote_is_unescaped():
  page = {'id': '1', 'url': 'x', 'title': 'A', 'text': 'a &lt; b\n## C'}
  other = page | {'score': 1}
  raw = ''.join(
    f'{json.dumps(x)}\n' for x in (page, page | {'revid': ''}, other)
  )
  plain = ['a < b', 'C']
  assert _read_json(raw.encode()) == [plain, plain, ['a &lt; b', '## C']]


# Columns.

_TEXTS = [f'Text {k}.\n\nIts end.' for k in range(1000)]


def _read(inputs, monkeypatch=None, room=None, **given):
  """Returns the paragraphs of all documents, and the counts."""
  if room:
    monkeypatch.setattr(sources, '_SMALLEST', room)
    monkeypatch.setattr(sources, '_LARGEST', room)
  groups = sources.plan([str(x) for x in inputs], 'paragraphs', 'text')
  documents, counts, _ = read_groups(groups, 'paragraphs', **given)
  return [x.paragraphs for x in documents], counts, len(groups)


def _write(path, texts=_TEXTS, kind='string', rows=300):
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
  'name, kind',
  [
    ('a.parquet', 'dictionary'),
    ('no_extension', 'string'),
    ('a.arrow', 'dictionary'),
    ('a.feather', 'large_string'),
  ],
)
def test_texts_are_those_of_json(tmp_path, name, kind):
  texts = [*_TEXTS[:900], None, '', 'Gödel\x00.\r\nLeft.']
  lines = tmp_path / 'a.jsonl'
  lines.write_text('\n'.join(json.dumps({'text': x}) for x in texts))
  path = _write(tmp_path / name, texts, kind)
  found = _read([path])
  assert found == _read([lines])
  assert found[0][-1] == ['Gödel.', 'Left.'] and len(found[0]) == 901
  assert found[1]['empty_documents'] == 2
  for extension in ('zst', 'gz') if name == 'a.arrow' else ('gz',):
    archive = tmp_path / f'{name}.{extension}'
    archive.write_bytes(COMPRESS[extension](path.read_bytes()))
    assert _read([archive])[0] == found[0]


def test_pieces_of_any_size_share_the_row_groups(tmp_path, monkeypatch):
  path = _write(tmp_path / 'a.parquet', rows=30)
  whole, _, pieces = _read([path])
  assert (len(whole), pieces) == (1000, 1)
  for room in (500, 1777):
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
  path.write_bytes(path.read_bytes()[:-9000])
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


# TFDS.


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  path = str(tmp_path_factory.mktemp('tfds'))
  rows = [{'text': f'Énd {i}.\n\nNext.', 'label': i} for i in range(3)]
  tfds_sets.write(
    path,
    'toy',
    lambda x: {'text': x.Text(), 'label': x.ClassLabel(num_classes=3)},
    {'train': rows},
  )
  return path


@pytest.fixture
def tfds_dir(data_dir, monkeypatch):
  tfds_sets.use(data_dir, monkeypatch)


def test_prepared_tfds_datasets_are_read(tfds_dir):
  texts = _read(['tfds:toy:train'])[0]
  assert sorted(texts) == [[f'Énd {i}.', 'Next.'] for i in range(3)]
  assert len(_read(['tfds:toy:train[:2]'])[0]) == 2


def test_tfds_inputs_that_cannot_be_read_are_refused(tfds_dir):
  for given, message in [
    ('tfds:toy', 'is not of the form'),
    ('tfds:a b:train', 'is not of the form'),
    ('tfds:wikipedia.20230601.en:train', 'cannot be read: Parsing builder'),
    ('tfds:toy:dev', 'cannot be read: .*dev.*prepare it by tfds'),
    ('tfds:no_such_set:train', 'cannot be read'),
  ]:
    with pytest.raises(errors.UserError, match=message):
      _read([given])
  with pytest.raises(errors.UserError, match="no feature 'body', only "):
    _read(['tfds:toy:train'], field='body')
  with pytest.raises(errors.UserError, match="'label' of .*, not text; name"):
    _read(['tfds:toy:train'], field='label')
