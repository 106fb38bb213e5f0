"""The command bert_jax.features, and its files."""

import numpy as np
import pytest

from bert_jax import errors, features
from bert_jax.inference import hidden_states
from tests import commands, models


def test_numpy_reads_what_was_written(tmp_path):
  path, hidden = str(tmp_path / 'x.npz'), np.arange(6, dtype=np.float32)
  one = hidden_states.Features(('é',) * 3, hidden.reshape(3, 2), None)
  features.write(path, [one, one], 2)
  with np.load(path, allow_pickle=False) as found:
    assert sorted(found) == ['hidden_0', 'hidden_1', 'tokens_0', 'tokens_1']
    assert found['tokens_0'].tolist() == ['é', 'é', 'é']
    np.testing.assert_array_equal(found['hidden_0'], [[0, 1], [2, 3], [4, 5]])


def test_lines_are_sentences_or_pairs():
  lines = ['a b', '', 'c\td\r', 'e\x85f']
  rows = [('a b',), ('',), ('c', 'd'), ('e\x85f',)]
  assert features.split_lines(lines, 'x') == rows
  with pytest.raises(errors.UserError, match='x: line 2 has 3 texts'):
    features.split_lines(['a', 'b\tc\td'], 'x')
  with pytest.raises(errors.UserError, match='has no sentence; give a file'):
    features.split_lines([], 'x')


def test_the_command_writes_features(tmp_path, capsys):
  folder = models.export_to(tmp_path / 'model')
  output = str(tmp_path / 'x.npz')
  given = [f'--model={folder}', f'--output={output}', '--layers=all']
  commands.run(features, *given, '--attention', 'the cats')
  assert capsys.readouterr().out == (
    'the sentences: 0.00% of the tokens are unknown\n'
    f'wrote {output}: 1 sentence\n'
  )
  with np.load(output) as found:
    assert found['hidden_0'].shape == (3, 5, 8)
    assert found['attention_0'].shape == (2, 2, 5, 5)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ('--model=x --output=x', 'either in a file, --input, or as arg'),
    ('--model=none --output=x a', 'none is neither a folder nor a checkpoint'),
  ],
)
def test_a_wrong_command_is_explained(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    commands.run(features, *arguments.split())
