"""The command bert_jax.features, its files and its picture."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bert_jax import errors, features
from bert_jax.inference import attention_plot, hidden_states
from tests import commands, models

TOKENS = ('[CLS]', '$', '$', '[SEP]')


def make_features(n=3):
  return hidden_states.Features(
    tokens=('é',) * n,
    hidden=np.arange(n * 2, dtype=np.float32).reshape(n, 2),
    attention=None,
  )


def test_numpy_reads_what_was_saved(tmp_path):
  path = str(tmp_path / 'x.npz')
  features.save(path, [make_features(), make_features(1)], 2)
  with np.load(path, allow_pickle=False) as found:
    assert sorted(found) == ['hidden_0', 'hidden_1', 'tokens_0', 'tokens_1']
    assert found['tokens_0'].tolist() == ['é', 'é', 'é']
    np.testing.assert_array_equal(found['hidden_0'], [[0, 1], [2, 3], [4, 5]])


def test_lines_are_sentences_or_pairs(tmp_path):
  path = tmp_path / 'x.txt'
  path.write_bytes('\ufeffa b\n\nc\td\r\ne\x85f'.encode())
  assert features.read_texts(str(path)) == ['a b', '', ('c', 'd'), 'e\x85f']
  path.write_text('a\nb\tc\td\n')
  with pytest.raises(errors.UserError, match=': line 2 has 3 texts'):
    features.read_texts(str(path))
  path.write_text('')
  with pytest.raises(errors.UserError, match='has no sentence; give a file'):
    features.read_texts(str(path))


def test_sentences_in_a_bucket_that_is_ill_are_no_wrong_file(ill, remote):
  ill.status = 503
  with pytest.raises(OSError, match='a made-up 503') as caught:
    features.read_texts(f'{remote}/x.txt')
  assert 'give a file' not in str(caught.value)


@pytest.mark.slow
def test_the_command_writes_features_and_draws(tmp_path):
  pytest.importorskip('matplotlib')
  folder = models.export_to(tmp_path / 'model')
  output, picture = str(tmp_path / 'x.npz'), str(tmp_path / 'x.png')
  result = subprocess.run(
    [
      *(sys.executable, '-m', 'bert_jax.features', '--attention'),
      *(f'--model={folder}', f'--output={output}', '--layers=all'),
      *(f'--attention_plot={picture}', 'the cats'),
    ],
    capture_output=True,
    encoding='utf-8',
  )
  assert (result.returncode, result.stderr) == (0, '')
  assert result.stdout == (
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
    ('--model=x a', '--output is missing; name a .npz'),
    ('--model=x --output=x', 'either in a file, --input, or as arg'),
    ('--model=none --output=x a', 'none is neither a folder nor a checkpoint'),
    ('--model=x --attention_plot=x a b', 'draws one sentence, not 2'),
    (
      '--model=x --output=x --layer=1 a',
      '--layer does nothing without --attention_plot; give that too, or leave',
    ),
    ('--model=x --output=x --head=0 a', '--head does nothing without --att'),
    ('--model=x --attention_plot=x --layers=all a', '--layers does nothing'),
    ('--model=x --attention_plot=x --attention a', '--attention does not'),
    ('--model=x --attention_plot=x --batch_size=2 a', '--batch_size does no'),
  ],
)
def test_a_wrong_command_is_explained(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    commands.run(features, *arguments.split())


def test_a_picture_names_the_tokens_of_every_head(tmp_path):
  figure = pytest.importorskip('matplotlib.figure')
  drawn = []
  maps = np.full((2, 3, 4, 4), 0.25)  # [L, H, S, S]

  class Recorded(figure.Figure):
    def savefig(self, *args, **kwargs):
      drawn.append(self)
      super().savefig(*args, **kwargs)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(figure, 'Figure', Recorded)
    for head in (None, 2):
      path = str(tmp_path / f'{head}.png')
      attention_plot.draw(path, TOKENS, maps, None, head)
  grid, one = ([a for a in f.axes if a.get_title()] for f in drawn)
  titles = [axis.get_title() for axis in grid]
  assert titles == [f'layer 1, head {i}' for i in range(3)]
  assert [axis.get_title() for axis in one] == ['layer 1, head 2']
  for labels in (one[0].get_xticklabels(), one[0].get_yticklabels()):
    assert [label.get_text() for label in labels] == list(TOKENS)
  assert sorted(os.listdir(tmp_path)) == ['2.png', 'None.png']


def test_layers_and_heads_that_are_not_there_are_refused():
  with pytest.raises(errors.UserError, match='layer=2 is not one of 0 to 1'):
    attention_plot.check(models.CONFIG, 2, None)
  with pytest.raises(errors.UserError, match='head=-1'):
    attention_plot.check(models.CONFIG, 1, -1)


def test_matplotlib_is_asked_for_by_name(monkeypatch):
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  with pytest.raises(errors.UserError, match='pip install matplotlib'):
    attention_plot.check(models.CONFIG, None, None)
