"""Tests of how long the rows were that a model was trained on."""

import json
import re

import numpy as np
import pytest

import bert_jax
from bert_jax import config, features, fill_mask, score
from bert_jax.inference import source, trained_length
from bert_jax.interop import hugging_face
from bert_jax.model import classifier
from tests import commands, models
from tests.finetuning import made

LONG = 'the cat dog the cat [MASK]'  # of 8 tokens


@pytest.mark.parametrize(
  'step, facts, expected',
  [
    (0, {}, 512),  # no row yet, so that none is longer
    (90, {}, 64),
    (91, {}, 128),
    (91, {'init_from': {'trained_length': 32}}, 128),
    (91, {'init_from': {'trained_length': 256}}, 256),
    (91, {'init_from': {'trained_length': 1024}}, 512),  # was cut
    (91, {'init_from': {'path': 'x'}}, 512),  # it is unknown
  ],
)
def test_the_longest_rows_are_the_runs_and_its_sources(step, facts, expected):
  c = config.pretraining('tiny')
  c.phases.update(seq_length=(64, 128), steps=(90, 10))
  assert trained_length.find(c.phases, 512, step, facts) == expected


def export(path, *about):
  params = models.make_params(made.BERT)
  hugging_face.export(str(path), params, made.BERT, models.TOKENIZER, *about)
  return str(path)


def make_head(max_length):
  kernel, bias = np.zeros((8, 2), np.float32), np.zeros(2, np.float32)
  return classifier.Head(kernel, bias, ('a', 'b'), max_length, ('text',))


@pytest.fixture
def trained(tmp_path):
  """Models of 16 positions, trained on rows of 6 tokens."""
  export(tmp_path / 'mlm', None, None, 6)
  export(tmp_path / 'head', None, make_head(8), 6)
  return tmp_path


def test_an_export_says_it_and_is_read_again(trained):
  for name in ('mlm', 'head'):
    path = trained / name / 'tokenizer_config.json'
    assert json.loads(path.read_text())['model_max_length'] == 6
    assert source.read(str(trained / name)).trained_length == 6


def test_every_command_warns_of_longer_texts(trained, capsys):
  mlm, given = trained / 'mlm', trained / 'in.txt'
  trained_length.warn(source.read(str(mlm)), [6, 4])  # which is not longer
  assert not capsys.readouterr().err
  given.write_text(f'{LONG}\n')
  commands.run(fill_mask, f'--model={mlm}', '--top=2', LONG)
  output = f'--output={trained}/out.npz'
  commands.run(features, f'--model={mlm}', f'--input={given}', output)
  output = f'--output={trained}/out.tsv'
  commands.run(score, f'--model={mlm}', f'--input={given}', output)
  bert_jax.load(str(trained / 'head')).predict([LONG])
  warned = r'WARNING: 1 text of up to \d+ tokens, .* on rows of 6: '
  assert len(re.findall(warned, capsys.readouterr().err)) == 4


def test_a_head_cut_to_its_own_length_says_nothing_of_the_encoder(tmp_path):
  path = export(tmp_path / 'model', None, make_head(6))
  assert source.read(path).trained_length is None
