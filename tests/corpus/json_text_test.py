import collections
import io
import json

import pytest

from bert_jax import errors
from bert_jax.corpus import json_text, text_files

_LINES = b'{"text": "One.\\nTwo."}\n\n{"text": null}\n{"text": "Three."}'
_DOCUMENTS = [['One.', 'Two.'], [], ['Three.']]


def _make(counts, layout='paragraphs'):
  return lambda value, place: json_text.make_documents(
    value, f'x.jsonl, {place},', 'text', layout, counts
  )


def _read_lines(raw, start=0, stop=1 << 60, counts=None):
  counts = collections.Counter() if counts is None else counts
  lines = text_files.read_lines(io.BytesIO(raw), start)
  found = json_text.read_lines(lines, stop, _make(counts), counts)
  return [d.paragraphs for d in found]


def _read_objects(raw, layout='paragraphs'):
  make = _make(collections.Counter(), layout)
  found = json_text.read_objects(io.BytesIO(raw), make)
  return [d.paragraphs for d in found]


def test_every_line_comes_once_however_a_file_is_cut():
  for step in range(1, len(_LINES) + 1):
    starts = range(0, len(_LINES), step)
    found = [_read_lines(_LINES, k, min(k + step, len(_LINES))) for k in starts]
    assert sum(found, []) == _DOCUMENTS, step


@pytest.mark.parametrize('chunk', [1, 7, 1 << 20])
@pytest.mark.parametrize(
  'form',
  ['[{},{},\n{}]', '{}\n{}{}', '{},\n{},\n{},\n', '\ufeff [\n{}, {}, {} ]'],
)
@pytest.mark.parametrize('indent', [None, 2])
def test_objects_come_in_any_form(monkeypatch, chunk, form, indent):
  monkeypatch.setattr(json_text, '_CHUNK', chunk)
  values = [{'id': {'ä': [1]}, 'text': text} for text in ('One.\nTwo.', None)]
  values.append({'text': 'Thrée.'})
  texts = (json.dumps(x, indent=indent, ensure_ascii=False) for x in values)
  raw = form.format(*texts).encode()
  assert _read_objects(raw) == [['One.', 'Two.'], [], ['Thrée.']]


@pytest.mark.parametrize(
  'line', ['{"body": "x"}', '[1]', '{"text": 1}', '{', '[' * 200_000]
)
def test_what_is_no_object_with_a_text_is_named_by_its_place(line):
  raw = b'{"text": "One."}\n' + line.encode()
  with pytest.raises(
    errors.UserError, match='x.jsonl, the line at byte 17, is'
  ):
    _read_lines(raw)
  if line[0] == '{':
    with pytest.raises(errors.UserError, match='x.jsonl, object 2, is not'):
      _read_objects(raw)


def test_surrogates_and_controls_are_cleaned_and_counted():
  raw = b'{"text": "a\\ud800b\\u0000\xe9"}\n'
  counts = collections.Counter()
  assert _read_lines(raw, counts=counts) == [['a\ufffdb\ufffd']]
  assert counts == {'invalid_utf8': 2, 'control_characters': 1}


def test_long_lines_are_read_and_too_long_ones_dropped(monkeypatch):
  text = 'word ' * 500_000
  raw = json.dumps({'text': text}).encode() + b'\n' + _LINES
  counts = collections.Counter()
  assert _read_lines(raw, counts=counts) == [[text.strip()], *_DOCUMENTS]
  monkeypatch.setattr(json_text, '_LONGEST', 1 << 20)
  assert _read_lines(raw, counts=counts) == _DOCUMENTS
  assert counts == {'long_lines_dropped': 1}
  with pytest.raises(errors.UserError, match='object 1, is not'):
    _read_objects(raw)


def test_only_what_wikiextractor_wrote_is_unescaped():
  page = {'id': '1', 'url': 'x', 'title': 'A', 'text': 'a &lt; b\n## C'}
  other = page | {'score': 1}
  raw = ''.join(
    f'{json.dumps(x)}\n' for x in (page, page | {'revid': ''}, other)
  )
  plain = ['a < b', 'C']
  assert _read_lines(raw.encode()) == [plain, plain, ['a &lt; b', '## C']]
