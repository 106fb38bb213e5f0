import pytest

from bert_jax.data import layout_warnings


def _manifest(layout='paragraphs', sentences=500, random=0.6, doubts=None):
  return {
    'recipe': {'layout': layout},
    'documents': {'train': 100},
    'sentences': sentences,
    'lengths': {'32': {'random_share': 0.5}, '128': {'random_share': random}},
    'doubts': doubts or {},
  }


@pytest.mark.parametrize(
  'manifest, words',
  [
    (_manifest(), []),
    (_manifest(sentences=299), ['3.0 sentences', 'data.layout=files']),
    (_manifest(random=0.81), ['81% of the pairs', 'blank lines']),
    (_manifest('lines', random=1), ['layout=paragraphs', 'nsp=False']),
    (_manifest('files', random=1), ['random: if they are so short, train']),
    (_manifest(doubts={'hard_wrapped': 2}), ['2 files', 'layout=files']),
    (_manifest(doubts={'unbroken': 1}), ['1 file of', 'layout=lines']),
    (_manifest(doubts={'finely_broken': 1}), []),
    (_manifest(doubts={'finely_broken': 2}), ['2 files', 'layout=files']),
    (_manifest() | {'documents': {'train': 99}, 'sentences': 99}, []),
  ],
)
def test_a_doubtful_layout_is_said_with_one_that_may_fit(manifest, words):
  found = layout_warnings.find(manifest)
  assert len(found) == bool(words)
  assert all(word in line for line in found for word in words)
  assert all(line.startswith('WARNING: ') for line in found)
