"""The command bert_jax.features, its files and its picture."""

import sys

import numpy as np
import pytest

from bert_jax import errors, features
from bert_jax.inference import hidden_states
from tests import commands, models

TOKENS = ('[CLS]', '$', '$', '[SEP]')


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


def test_the_command_writes_features_and_draws(tmp_path, capsys, monkeypatch):
  with monkeypatch.context() as m:
    m.setitem(sys.modules, 'matplotlib', None)
    with pytest.raises(errors.UserError, match='pip install matplotlib'):
      commands.run(features, '--model=x', '--attention_plot=x', 'a')
  pytest.importorskip('matplotlib')
  folder = models.export_to(tmp_path / 'model')
  output, picture = str(tmp_path / 'x.npz'), str(tmp_path / 'x.png')
  given = [f'--model={folder}', f'--output={output}', '--layers=all']
  given += ['--attention', f'--attention_plot={picture}', 'the cats']
  commands.run(features, *given)
  assert capsys.readouterr().out == (
    'the sentences: 0.00% of the tokens are unknown\n'
    f'wrote {output}: 1 sentence\nwrote {picture}: [CLS] the cat ##s [SEP]\n'
  )
  with np.load(output) as found:
    assert found['hidden_0'].shape == (3, 5, 8)
    assert found['attention_0'].shape == (2, 2, 5, 5)
  with open(picture, 'rb') as file:
    assert file.read(8) == b'\x89PNG\r\n\x1a\n'


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ('--model=x a', 'give --output=FILE.npz or --attention_plot=FILE.png'),
    ('--model=x --output=x', 'either in a file, --input, or as arg'),
    ('--model=none --output=x a', 'none is neither a folder nor a checkpoint'),
    ('--model=x --attention_plot=x a b', 'draws one sentence, in quotes'),
    ('--model=x --output=x --head=0 a', '--head needs --attention_plot; give'),
    ('--model=x --attention_plot=x --attention a', '--attention needs --outp'),
  ],
)
def test_a_wrong_command_is_explained(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    commands.run(features, *arguments.split())


def test_a_picture_names_the_tokens_of_every_head(tmp_path, monkeypatch):
  figure = pytest.importorskip('matplotlib.figure')
  drawn = []
  monkeypatch.setattr(
    figure.Figure, 'savefig', lambda self, *args, **kwargs: drawn.append(self)
  )
  maps = {f'head {i}': np.full((4, 4), 0.25) for i in range(3)}
  features.draw_attention(str(tmp_path / 'x.png'), TOKENS, maps)
  shown = [axis for axis in drawn[0].axes if axis.get_title()]
  assert [axis.get_title() for axis in shown] == [*maps]
  for labels in (shown[2].get_xticklabels(), shown[2].get_yticklabels()):
    assert [label.get_text() for label in labels] == list(TOKENS)
