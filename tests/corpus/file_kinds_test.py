import io
import json
import tarfile
import zipfile

import pytest

from bert_jax import errors
from bert_jax.corpus import file_kinds
from bert_jax.corpus.file_kinds import JSON, LINES, PAGES, TEXT, WIKITEXT


def _zip(name, content=b'x'):
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w') as archive:
    archive.writestr(name, content)
  return file.getvalue()


def _tar():
  file = io.BytesIO()
  with tarfile.open(fileobj=file, mode='w') as archive:
    archive.addfile(tarfile.TarInfo('a.txt'))
  return file.getvalue()


@pytest.mark.parametrize(
  'head, what',
  [
    (_zip('a.txt'), 'a zip archive or .*; unpack it'),
    (
      _zip('word/document.xml'),
      'a document such as .docx; .* or save its text',
    ),
    (_tar(), 'a tar archive; unpack it'),
    (b'Rar!\x1a\x07\x01\0', 'a RAR'),
    (b'%PDF-1.4\n', 'a PDF'),
    (b'{\\rtf1\\ansi', 'a document such as'),
    (b'SQLite format 3\0' + bytes(9), 'not text in UTF-8'),
    (
      b'version https://git-lfs.github.com/spec/v1\n',
      'git-lfs; .* git lfs pull',
    ),
    (b'\xef\xbb\xbf\n<!DOCTYPE html>\n', 'HTML'),
    (b'<!-- a --> <!-- b -->\n<HTML lang="en">', 'HTML'),
    (b'<?xml version="1.0"?><TEI>', 'XML'),
    (b'<TEI n="1"\n xmlns="http://www.tei-c.org/ns/1.0">', 'XML'),
    (b"{'text': 'One.'}\n{'text': 'Two.'}\n", 'Python, not JSON'),
    (b'# a\n\n' + b'1\tOne.\n' * 12, 'a table'),
    (b'id\ttext\tlabel\n' + b'1\t\t0\n' * 12 + b'13\tcu', 'a table'),
    (b'["One.", "Two."]', 'JSON without objects'),
    ('한국어다. '.encode('utf-16-le') * 9, 'not text .* UTF-16LE'),
    ('한국어다. '.encode('utf-16') * 9, 'iconv -f UTF-16 '),
    ('One. '.encode('utf-32-be') * 9, 'not text'),
    ('그 사람은 어제'.encode('cp949') * 9, 'iconv -f ENCODING .* CP949'),
    (bytes(range(256)), 'not text in UTF-8'),
  ],
)
def test_what_is_not_text_is_refused_by_name_in_one_line(head, what):
  with pytest.raises(errors.UserError, match=f'^a.txt is .*{what}') as caught:
    file_kinds.recognise('a.txt', head)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'end', ['csv', 'tsv.gz', 'mhtml', 'xml', 'tgz', 'docx', 'tar']
)
def test_some_kinds_have_only_their_names(end):
  with pytest.raises(errors.UserError, match=f'^a.{end} is .*; (save|unpack)'):
    file_kinds.recognise(f'a.{end}', b'One.\n')


_LONG = 'Some. ' * 20_000


@pytest.mark.parametrize(
  'text, kind',
  [
    ('{"text": "One."}\n{"text": "Two."}', LINES),
    ('\ufeff\n{"id": {"a": 1}, "text": "One."}\r\n', LINES),
    (json.dumps({'id': [1], 'text': _LONG})[: 1 << 16], LINES),
    ('{\n  "text": "One."\n}', JSON),
    ('{"text": "One."},\n{"text": "Two."}', JSON),
    ('[{"text": "One."}, {"text": "Two."}]', JSON),
    (json.dumps([{'text': _LONG}], indent=2)[: 1 << 16], JSON),
    ('\n<doc id="1" title="A">\n', PAGES),
    (' \n = A = \n \n', WIKITEXT),
  ],
)
def test_json_and_pages_are_recognised_whatever_the_name(text, kind):
  assert file_kinds.recognise('a.txt', text.encode()) == kind


@pytest.mark.parametrize(
  'text',
  [
    '[Illustration: a cat]\n\nOne.',
    '[1] One.\n[2] Two.',
    '[1]\n[2]\n',
    '["One," he said.]',
    '[[Category:Cats]]',
    '{{Infobox}}\nOne.',
    '{| class="a"\n',
    '{see "text": "abc"}',
    '<p> is a tag.',
    "{'Tis so} he said.",
    '\tOne.\n' * 20,
    'Ann:\tOne.\n<Bob>\tTwo.\n[9:30]\tThree.\n' * 9,
    '\tAnn:\tOne.\n' * 9 + '\tand so on.\n' * 9,
    'PARIS is old. BZh91 is not.',
    ' = 5 is wrong.',
    'x' * 256 + 'custard',  # at whose place an archive has 'ustar'
    '',
  ],
)
def test_prose_may_begin_like_them(text):
  assert file_kinds.recognise('a.txt', text.encode()) == TEXT


def test_few_bytes_that_are_no_text_are_left_to_the_warning():
  text = ('Ein Käse für den Löwen. ' * 40).encode('cp1252')  # 12 % of words
  head = text.replace(b'\xe4', b'ae').replace(b'\xfc', b'ue')
  assert file_kinds.recognise('a.txt', head) == TEXT
  with pytest.raises(errors.UserError, match='not text in UTF-8'):
    file_kinds.recognise('a.txt', text)
