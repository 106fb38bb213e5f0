import collections
import textwrap

import pytest

from bert_jax.corpus import layout_doubts
from bert_jax.corpus.document import Document

_SENTENCE = 'The {} ships that lay in the old harbour left it in the year {}.'
_PROSE = [
  ' '.join(_SENTENCE.format(k, j) for j in range(1 + k % 5)) for k in range(60)
]


def _count(watch, documents):
  counts = collections.Counter()
  documents = [Document(x) for x in documents]
  assert list(watch(iter(documents), counts)) == documents
  return dict(counts)


@pytest.mark.parametrize('width', [60, 75])
def test_hard_wrapped_lines_are_noticed(width):
  wrapped = [textwrap.wrap(x, width) for x in _PROSE]
  lines = [line for x in wrapped for line in x]
  for documents in (wrapped, [lines], [lines * 9]):
    assert _count(layout_doubts.watch, documents) == {'hard_wrapped': 1}


@pytest.mark.parametrize(
  'lines',
  [
    _PROSE,
    [_SENTENCE.format(k, 1000 + k) for k in range(60)],  # a sentence per line
    ['short'] * 100,
    ['A headline' + ' of words' * (k % 7) for k in range(100)],
    textwrap.wrap(_PROSE[4], 60),
    [],
  ],
)
def test_other_lines_are_not(lines):
  for documents in ([lines], [[x] for x in lines]):
    assert _count(layout_doubts.watch, documents) == {}


@pytest.mark.parametrize(
  'documents, found',
  [
    ([['x' * 1000] * 300], {'unbroken': 1}),
    ([['x' * 1000] * 200], {}),
    ([['x' * 60] * 1000], {'unbroken': 1}),
    ([['x' * 60] * 999], {}),
    ([['x' * 1000] * 300] * 2, {}),
    ([['x' * 1000] * 5000] * 2, {'unbroken': 1}),  # cut, for memory
    ([['x' * 400, 'y' * 400]] * 10, {'finely_broken': 1}),
    ([['x' * 400, 'y' * 400]] * 9, {}),
    ([['x' * 1000]] * 10, {}),
    ([], {}),
  ],
)
def test_files_with_too_few_or_many_blank_lines_are_noticed(documents, found):
  watch = lambda x, counts: layout_doubts.watch_blocks(x, True, counts)  # noqa: E731
  assert _count(watch, documents) == found
