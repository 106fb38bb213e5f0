import collections
import gzip

import pytest

from bert_jax import errors
from bert_jax.corpus import sources
from tests.corpus.text_files_test import COMPRESS


def read_groups(groups, layout, field='text'):
  """Returns the documents of groups of ranges, and the counts of both kinds."""
  counts, invalid = collections.Counter(), collections.Counter()
  documents = [
    document
    for group in groups
    for part in group
    for document in sources.read_documents(part, layout, field, counts, invalid)
  ]
  return documents, counts, invalid


def _read(inputs, layout='paragraphs', field='text', counts=None):
  """Returns the documents of all inputs; adds to `counts`."""
  groups = sources.plan([str(given) for given in inputs], layout, field)
  found, more, _ = read_groups(groups, layout, field)
  if counts is not None:
    counts.update(more)
  return found


def _texts(*args):
  return [document.paragraphs for document in _read(*args)]


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


def test_formats_are_recognised_and_plain_text_has_the_layout(write):
  plain = write('a.txt', '\ufeffOne two\r\nthree.\r\n\r\nFour.\r\n')
  pages = write('wiki_00', '\n<doc id="1" title="A">\nA\n\nText.\n</doc>\n')
  lines = write('a.jsonl', '{"text": "Line.\\nLine."}\n')
  dump = write(
    'dump.xml',
    '<mediawiki><page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id>'
    "<text>'''Dumped''' text.</text></revision></page></mediawiki>",
  )
  others = [['Text.'], ['Dumped text.'], ['Line.', 'Line.']]
  inputs = [plain, pages, dump, lines]
  assert _texts(inputs, 'files') == [
    ['One two three.', 'Four.'],
    *others[:2],
    ['Line. Line.'],
  ]
  assert _texts(inputs, 'lines') == [
    ['One two'],
    ['three.'],
    ['Four.'],
    *others,
  ]
  for layout in ('paragraphs', 'sentences'):
    assert _texts(inputs, layout) == [['One two', 'three.'], ['Four.'], *others]
  found = _read(inputs, 'sentences')
  assert [d.are_sentences for d in found] == [True, True, False, False, False]


def test_files_of_a_folder_are_judged_one_by_one(write, tmp_path):
  write('a.txt', 'One.')
  write('b', '[\n {"text": "Two."},\n {"text": "Three."}\n]')
  write('c.txt', gzip.compress(b'Four.'))  # whatever the name
  write('d.gz', 'Five.')
  texts = [['One.'], ['Two.'], ['Three.'], ['Four.'], ['Five.']]
  assert _texts([tmp_path]) == texts
  path = write('e.csv', 'id,text\n1,Six.\n')
  with pytest.raises(errors.UserError, match=f'{path} is a table'):
    _texts([tmp_path])


def test_bytes_that_are_no_text_are_refused_wherever_they_are(write):
  text = b'One.\n' * 4000 + 'Käse\n'.encode('cp1252') * 900
  assert len(_read([write('b.txt', text[:-500])])) == 1
  path = write('a.txt', text + b'\xff' * 1000)
  with pytest.raises(errors.UserError, match=f'{path} is not text in UTF-8'):
    _read([path])


@pytest.mark.parametrize(
  'layout, extension',
  [('files', 'gz'), *(('paragraphs', x) for x in COMPRESS)],
)
def test_damaged_archives_are_read_to_the_damage_named_and_counted(
  write, capsys, layout, extension
):
  text = '\n\n'.join(f'{k} is {k * k}.' for k in range(10_000))  # 200 kB
  whole = COMPRESS[extension](text.encode())
  path = write(f'a.{extension}', whole[: len(whole) * 3 // 4])
  counts = collections.Counter()
  documents = _read([path], layout, counts=counts)
  found = '\n\n'.join(x for d in documents for x in d.paragraphs)
  assert text.startswith(found) and counts['damaged_files'] == 1
  # What is decompressed before the damage depends on the format's blocks.
  assert len(found) >= (0 if extension == 'bz2' else 50_000)
  assert f'{str(path)!r} cannot be read to its end' in capsys.readouterr().err


@pytest.mark.parametrize('extension', [x for x in COMPRESS if x != 'zst'])
def test_of_a_small_damaged_archive_all_before_the_damage_is_used(
  write, extension
):
  text = '\n\n'.join(f'{k} is {k * k}.' for k in range(1000))  # below 64 kB
  whole = COMPRESS[extension](text.encode())
  # Of bz2, a block behind the first, which is whole.
  path = write(f'a.{extension}', (whole + whole)[: -len(whole) // 2])
  assert len(_read([path])) >= 999  # the line that is cut may be lost


@pytest.mark.parametrize('name', ['a.txt', 'a.jsonl', 'a.txt.gz'])
def test_a_disk_that_fails_ends_the_reading(tmp_path, name):
  # Opens, and answers EIO to whoever reads its start.
  (tmp_path / name).symlink_to('/proc/self/mem')
  part = sources.Range(0, str(tmp_path / name), 0, 1000, 1000)
  with pytest.raises(OSError, match=f'{name}: Input/output error'):
    read_groups([[part]], 'paragraphs')


def test_big_files_are_cut_and_small_ones_joined(write, tmp_path, monkeypatch):
  monkeypatch.setattr(sources, '_SMALLEST', 100)
  text = '\n\n'.join(f'Document {k}.' for k in range(50))
  big = write('text/a.txt', text)
  for name in ('b', 'c'):
    write(f'text/{name}.txt', f'Document {name}.')
  packed = write('text/d.txt.gz', gzip.compress(text.encode()))
  dump = write('text/e.xml', f'<mediawiki>{" " * 100}</mediawiki>')
  wholes = str(packed), str(dump)
  plan = sources.plan([str(tmp_path / 'text')], 'paragraphs', 'text')
  ranges = [part for group in plan for part in group]
  of_big = [part.start for part in ranges if part.path == str(big)]
  assert of_big == list(range(0, len(text), 100))
  assert [x.path for x in ranges if x.path in wholes] == [*wholes]
  assert len(plan) > 5 and max(map(len, plan)) > 1
  found = _texts([tmp_path / 'text'])
  assert sorted(found) == sorted(
    2 * [[f'Document {k}.'] for k in range(50)]
    + [['Document b.'], ['Document c.']]
  )


def test_a_broken_link_is_refused_before_reading(tmp_path):
  (tmp_path / 'b.txt').symlink_to('nowhere')
  with pytest.raises(errors.UserError, match='b.txt: No such file or dir'):
    sources.plan([str(tmp_path)], 'paragraphs', 'text')


def test_what_is_not_utf8_is_counted_for_its_file(write, tmp_path):
  path, _ = write('a.txt', b'caf\xe9'), write('b.txt', 'One.')
  groups = sources.plan([str(tmp_path)], 'paragraphs', 'text')
  _, _, invalid = read_groups(groups, 'paragraphs')
  assert +invalid == {str(path): 1}
