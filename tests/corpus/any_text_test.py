"""Whatever the bytes: no crash, clean text, and cuts that change nothing."""

import re

import hypothesis
from hypothesis import strategies as st

from bert_jax import errors
from bert_jax.corpus import file_kinds, sources
from bert_jax.corpus.document import split
from tests.corpus.sources_test import read_groups

_NOT_CLEAN = re.compile('[\x00-\x1f\x7f\ud800-\udfff]')

# Pieces that formats care for, among bytes that they do not.
_BYTES = st.lists(
  st.one_of(
    st.binary(max_size=8),
    st.sampled_from(
      [
        *(b'\n', b'\r\n', b'\n\n', b' \n', b'\0', b'\xef\xbb\xbf', b'\x85'),
        *(b'<doc id="1" title="x">\n', b'</doc>\n', b'{"text": "', b'"}\n'),
        *(b'\r', b'\r\r', b'\x0c', b'\xe2\x80\xa9', b'\xc2\x85'),
        *(b'\xe2\x80\x8b', b' = A = \n', b'[{"text": "', b'"}]'),
        *(b'\xe2\x80\xa8', '漢字'.encode(), 'é'.encode('latin-1'), b'word. '),
        *(b'*** START OF THE PROJECT GUTENBERG EBOOK X ***\n', b'<mediawiki>'),
      ]
    ),
  ),
  max_size=30,
).map(b''.join)
_SETTINGS = hypothesis.settings(
  max_examples=60,
  deadline=None,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


@_SETTINGS
@hypothesis.given(
  layout=st.sampled_from(['paragraphs', 'sentences', 'lines', 'files']),
  name=st.sampled_from(['a.txt', 'a.jsonl', 'a.gz', 'a.zst']),
  raw=_BYTES,
)
def test_any_bytes_give_clean_text_or_one_clear_error(
  tmp_path, layout, name, raw
):
  path = tmp_path / name
  path.write_bytes(raw)
  try:
    found, *_ = read_groups(sources.plan([str(path)], layout, 'text'), layout)
  except errors.UserError as error:
    assert str(path) in str(error) and '\n' not in str(error)
    return
  for document in found:
    assert document.paragraphs
    for paragraph in document.paragraphs:
      assert paragraph == paragraph.strip() != ''
      assert not _NOT_CLEAN.search(paragraph)
    for sentence in split(document, 'en'):
      assert sentence == sentence.strip() != ''


@_SETTINGS
@hypothesis.given(
  layout=st.sampled_from(['paragraphs', 'lines']),
  raw=_BYTES,
  step=st.integers(1, 40),
)
def test_cutting_a_file_changes_neither_text_nor_counts(
  tmp_path, layout, raw, step
):
  path = tmp_path / 'a.txt'
  path.write_bytes(raw)
  try:
    kind = file_kinds.recognise(str(path), raw)
  except errors.UserError:
    hypothesis.reject()
  hypothesis.assume(kind not in file_kinds.INDIVISIBLE)
  whole = sources.Range(0, str(path), 0, len(raw), len(raw))
  # Only what is read as a whole can be told from a book of Gutenberg's.
  hypothesis.assume(b'GUTENBERG' not in raw)
  hypothesis.assume(
    b'{"text": "' not in raw and b'["' not in raw
  )  # nearly always an error
  cut = [
    sources.Range(0, str(path), k, min(k + step, len(raw)), len(raw))
    for k in range(0, len(raw), step)
  ]
  expected = read_groups([[whole]], layout)
  assert read_groups([cut], layout) == expected
