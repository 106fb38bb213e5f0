"""What bert_jax.score reads, writes and prints."""

import json

import numpy as np
import pytest

from bert_jax import errors, score
from bert_jax.inference import pseudo_likelihood
from bert_jax.interop import hugging_face
from tests import commands
from tests.inference import fill_test, pseudo_likelihood_test

MODEL = pseudo_likelihood_test.certain()


def score_pairs(model, items, *more):
  names, pairs = zip(*items, strict=True)
  ids = model.tokenizer.ids([text for pair in pairs for text in pair])
  return score.score_pairs(model, names, ids, *more)


def write(path, *lines):
  path.write_text(''.join(f'{line}\n' for line in lines), encoding='utf-8')
  return str(path)


def test_blimp_zorro_and_tsv_are_read(tmp_path):
  lines = [
    {'sentence_good': 'a b', 'sentence_bad': 'a c', 'UID': 'agreement'},
    {'sentence_good': 'd', 'sentence_bad': 'e', 'pairID': '1'},
  ]
  blimp = write(tmp_path / 'p.jsonl', *map(json.dumps, lines))
  zorro = write(tmp_path / 'z.txt', 'wrong .', 'right .', 'bad', 'good')
  tsv = write(tmp_path / 't.tsv', 'sentence_good\tsentence_bad', 'f g\th')
  assert score.read_items([blimp, tsv, zorro], two_lines=True) == [
    ('agreement', ('a b', 'a c')),
    ('p', ('d', 'e')),
    ('t', ('f g', 'h')),
    ('z', ('right .', 'wrong .')),
    ('z', ('good', 'bad')),
  ]
  head = 'pairID\tsentence_bad\tsentence_good\tUID'
  named = write(tmp_path / 'n.tsv', head, '1\tbad\tgood\tsome')
  assert score.read_items([named]) == [('some', ('good', 'bad'))]
  (tmp_path / 'more').mkdir()
  paths = [
    write(tmp_path / name, 'a\tb')
    for name in ('z.v1.tsv', 'z.v2.tsv', 'dev.tsv', 'more/dev.tsv')
  ]
  names = [name for name, _ in score.read_items(paths)]
  assert names == ['z.v1', 'z.v2', *paths[2:]]
  assert score.read_items([zorro])[:2] == [
    (None, ('wrong .',)),
    (None, ('right .',)),
  ]


@pytest.mark.parametrize(
  'name, lines, flag, message',
  [
    ('x.txt', [], False, 'has no sentence; give files of either'),
    ('x.txt', ['a', 'b', 'c'], True, 'x.txt has 3 lines .* two are a pair'),
    ('x.txt', ['a\tb'], False, r"x.txt has a tab in 'a\\tb'; .* a .tsv file"),
    ('x.tsv', ['a\tb\tc'], False, 'line 1 has 3 columns, not 2'),
    ('x.tsv', ['a\t'], False, 'x.tsv: line 1 has no sentence_good and sen'),
    ('x.jsonl', ['{"text": "a"}'], False, 'line 1 has no sentence_good and'),
  ],
)
def test_what_cannot_be_scored_is_said(tmp_path, name, lines, flag, message):
  path = write(tmp_path / name, *lines)
  with pytest.raises(errors.UserError, match=message):
    score.read_items([path], flag)
  paths = write(tmp_path / 'a.txt', 'a'), write(tmp_path / 'b.tsv', 'a\tb')
  with pytest.raises(errors.UserError, match='both sentences and pairs'):
    score.read_items(paths)


def test_ties_count_half_and_unknown_words_are_counted():
  """cat has 1/2, dog 1/4, bird and ran 1/8 each."""
  items = [
    *[('x', ('the cat', 'the dog'))] * 8,
    *[('x', ('the dog', 'the cat'))] * 2,
    ('y', ('bird sat', 'ran sat')),  # equally likely
    ('y', ('the Cat', 'the cat')),  # the same to the model
    ('y', ('cat', 'zebra')),
    ('y', ('dog ran', 'cat sat')),  # 1/32 against none
  ]
  # Wilson's interval of 8 out of 10 is (0.490, 0.943).
  assert score_pairs(MODEL, items) == [
    ('paradigm', 'accuracy', 'low', 'high', 'pairs', 'with [UNK]'),
    ('x', '80.0', '49.0', '94.3', '10', '0'),
    ('y', '75.0', '30.1', '95.4', '4', '1'),
    ('mean of all', '77.5', '50.2', '90.0', '14', '1'),
  ]


def test_the_word_that_differs_decides_unless_all_are_asked_for(monkeypatch):
  asked = []

  def note(model, sentences, words):
    asked.extend(words)
    return np.arange(len(words), 0.0, -1)

  monkeypatch.setattr(pseudo_likelihood, 'score', note)
  items = [('x', ('the cat sat', 'the dog sat')), ('x', ('the', 'the'))]
  score_pairs(MODEL, items)
  assert asked == [[(1, 2)], [(1, 2)], [], []]
  words = [(0, 1), (1, 2), (2, 3)]
  for model, full in (
    (MODEL, True),
    (pseudo_likelihood_test.mixed(causal=True), False),
  ):
    asked.clear()
    score_pairs(model, items, full)
    assert asked == [words, words, [], []]


def test_the_command_writes_a_table(tmp_path, capsys):
  params, config = fill_test.make_certain_model()
  model = str(tmp_path / 'model')
  hugging_face.export(model, params, config, fill_test.TOKENIZER)
  output = tmp_path / 'out.tsv'

  def run(path, *more):
    given = f'--model={model}', f'--input={path}', f'--output={output}'
    commands.run(score, *given, *more)
    return output.read_text(encoding='utf-8').splitlines()

  rows = run(write(tmp_path / 'one.tsv', 'the cat\tthe dog'))
  assert rows == [
    'paradigm\taccuracy\tlow\thigh\tpairs\twith [UNK]',
    'one\t100.0\t20.7\t100.0\t1\t0',
    'mean of all\t100.0\t20.7\t100.0\t1\t0',
  ]
  assert '| one | 100.0 | 20.7 | 100.0 | 1 | 0 |' in capsys.readouterr().out
  lines = write(tmp_path / 'one.txt', 'the dog', 'the cat')
  assert run(lines, '--two_lines') == rows
  rows = run(write(tmp_path / 'two.txt', 'cat dog', '', 'ran'))
  assert [row.split('\t')[1] for row in rows] == ['sentence', 'cat dog', 'ran']
  scores = [float(row.split('\t')[0]) for row in rows[1:]]
  np.testing.assert_allclose(scores, [-np.log(8), -np.log(8)], rtol=1e-6)
