import bz2
import gzip
import lzma

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import sources


def _texts(inputs, layout='paragraphs'):
  found = sources.documents([str(i) for i in inputs], layout)
  return [document.paragraphs for document in found]


@pytest.fixture
def write(tmp_path):
  def to(name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
      content if isinstance(content, bytes) else content.encode()
    )
    return path

  return to


@pytest.mark.parametrize('layout', ['paragraphs', 'sentences'])
def test_blank_lines_separate_documents(write, layout):
  path = write('a.txt', '\n\nOne.\nTwo.\n \n\t\nThree.')
  assert _texts([path], layout) == [['One.', 'Two.'], ['Three.']]


def test_a_file_is_a_document_of_unwrapped_paragraphs(write):
  path = write('a.txt', 'One two\n  three.\n\n\nFour\nfive.\n')
  assert _texts([path], 'files') == [['One two three.', 'Four five.']]


def test_windows_text_reads_like_any_other(write):
  path = write('a.txt', '\ufeffOne.\r\nTwo.\r\n\r\nThree.\r\n')
  assert _texts([path]) == [['One.', 'Two.'], ['Three.']]
  assert _texts([path], 'files') == [['One. Two.', 'Three.']]


@pytest.mark.parametrize('layout', sources.LAYOUTS)
def test_wikiextractor_pages_are_documents_in_any_layout(write, layout):
  path = write(
    'wiki_00',
    '<doc id="12" url="https://x?curid=12" title="Cats &amp; "Dogs"">\n'
    'Cats & "Dogs"\n\nThey fight.\nCats & "Dogs"\n\n</doc>\n'
    '<doc id="13" url="https://x?curid=13" title="Owls">\nOwls\n</doc>\n'
    '<doc id="14" url="https://x?curid=14" title="Mice">\nMice\n\nHide.\n',
  )
  found = list(sources.documents([str(path)], layout))
  assert found == [
    (f'{path}#12', ['They fight.', 'Cats & "Dogs"']),
    (f'{path}#14', ['Hide.']),
  ]


def test_jsonl_lines_are_documents(write):
  path = write('a.jsonl', '{"text": "One.\\nTwo."}\n\n{"text": "Three."}\n')
  assert _texts([path]) == [['One.', 'Two.'], ['Three.']]


@pytest.mark.parametrize(
  'line', ['{"body": "x"}', '[1]', '{"text": 1}', '{', '{"text": "\\ud800"}']
)
def test_bad_jsonl_is_named_by_line(write, line):
  path = write('a.jsonl', '{"text": "One."}\n' + line)
  with pytest.raises(errors.UserError, match='a.jsonl line 2 is not'):
    _texts([path])


@pytest.mark.parametrize(
  'extension, compress',
  [('gz', gzip.compress), ('bz2', bz2.compress), ('xz', lzma.compress)],
)
def test_compressed_files_read_like_plain_ones(write, extension, compress):
  path = write(f'a.txt.{extension}', compress(b'One.\n\nTwo.\n'))
  assert _texts([path]) == [['One.'], ['Two.']]
  lines = write(f'a.jsonl.{extension}', compress(b'{"text": "Three."}'))
  assert _texts([lines]) == [['Three.']]
  assert sources.total_bytes([str(path)]) == 0


@pytest.mark.parametrize(
  'extension, compress',
  [('gz', gzip.compress), ('bz2', bz2.compress), ('xz', lzma.compress)],
)
def test_damaged_archives_are_refused(write, extension, compress):
  whole = compress(np.random.default_rng(0).bytes(100).hex().encode() * 9)
  for content in (whole[: len(whole) // 2], b'no archive'):
    path = write(f'a.{extension}', content)
    with pytest.raises(errors.UserError, match=f'a.{extension} cannot be read'):
      _texts([path])


def test_bytes_that_are_not_utf8_are_named_and_not_replaced(write):
  path = write('a.txt', b'\xef\xbb\xbfOne.\n\ncaf\xe9\n')
  with pytest.raises(errors.UserError) as caught:
    _texts([path])
  assert 'a.txt is not UTF-8 at byte 12 (0xe9)' in str(caught.value)
  assert f'iconv -f ISO-8859-1 -t UTF-8 {path}' in str(caught.value)
  path = write('b.txt', 'One.'.encode('utf-16'))
  with pytest.raises(errors.UserError, match='iconv -f UTF-16'):
    _texts([path])


def test_files_come_in_the_order_of_inputs_then_of_names(write, tmp_path):
  for name in ('b.txt', 'a.txt', 'c.md', 'd/z.txt', '.hidden'):
    write(name, name)
  assert _texts([tmp_path / 'c.md', tmp_path / '*.txt']) == [
    ['c.md'],
    ['a.txt'],
    ['b.txt'],
  ]
  everything = [['a.txt'], ['b.txt'], ['c.md'], ['d/z.txt']]
  assert _texts([tmp_path]) == everything
  assert _texts([tmp_path / '*']) == everything
  assert _texts([tmp_path / '**' / 'z.txt']) == [['d/z.txt']]


def test_a_name_with_brackets_is_a_name(write):
  path = write('a[1].txt', 'One.')
  assert _texts([path]) == [['One.']]


def test_total_bytes_adds_files(write, tmp_path):
  write('a.txt', 'One.')
  write('b.txt', 'Three.')
  assert sources.total_bytes([str(tmp_path)]) == 10
  assert sources.total_bytes([str(tmp_path), 'python-docs']) == 0


def test_inputs_that_name_nothing_are_refused_before_reading(write, tmp_path):
  path = write('a.txt', 'One.')
  found = sources.documents([str(path), str(tmp_path / 'x*')], 'paragraphs')
  with pytest.raises(errors.UserError, match=r'x\*. names no file'):
    next(found)
  (tmp_path / 'empty').mkdir()
  with pytest.raises(errors.UserError, match='empty. names no file'):
    _texts([tmp_path / 'empty'])
  for inputs in ([], ['']):
    with pytest.raises(errors.UserError, match='no input is given'):
      list(sources.documents(inputs, 'paragraphs'))
  with pytest.raises(errors.UserError, match="'lines' is not one of para"):
    _texts([path], 'lines')


def test_reading_is_lazy(write):
  path = write('a.txt', b'One.\n\nTwo.\n\n' + b'x\n' * 100_000 + b'\xff')
  found = sources.documents([str(path)], 'paragraphs')
  assert next(found).paragraphs == ['One.']
  assert next(found).paragraphs == ['Two.']


# TFDS.


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  tfds = pytest.importorskip('tensorflow_datasets')

  class Toy(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version('1.0.0')

    def _info(self):
      features = {'text': tfds.features.Text(), 'id': tfds.features.Text()}
      return tfds.core.DatasetInfo(
        builder=self, features=tfds.features.FeaturesDict(features)
      )

    def _split_generators(self, dl_manager):
      del dl_manager
      return {'train': self._generate_examples()}

    def _generate_examples(self):
      for i in range(3):
        yield i, {'text': f'Énd {i}.\n\nNext.', 'id': str(i)}

  path = str(tmp_path_factory.mktemp('tfds'))
  Toy(data_dir=path, file_format='array_record').download_and_prepare()
  return path


@pytest.fixture
def tfds_dir(data_dir, monkeypatch):
  import tensorflow_datasets as tfds

  monkeypatch.setattr(tfds.core.constants, 'DATA_DIR', data_dir)
  monkeypatch.setenv('TFDS_DATA_DIR', data_dir)
  return data_dir


def test_prepared_tfds_datasets_are_read(tfds_dir):
  del tfds_dir
  texts = _texts(['tfds:toy:train'])
  assert sorted(texts) == [[f'Énd {i}.', 'Next.'] for i in range(3)]
  assert len(_texts(['tfds:toy:train[:2]'])) == 2
  assert sources.total_bytes(['tfds:toy:train']) == 0


def test_tfds_inputs_that_cannot_be_read_are_refused(tfds_dir):
  del tfds_dir
  for given, message in [
    ('tfds:toy', 'is not of the form'),
    ('tfds:a b:train', 'is not of the form'),
    ('tfds:toy:dev', 'no split .dev.; it has train'),
    ('tfds:no_such_set:train', 'is not prepared'),
  ]:
    with pytest.raises(errors.UserError, match=message):
      _texts([given])
