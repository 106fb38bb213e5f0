"""Runs that adapt a model to a domain, from the command to the folder."""

import json
import os

import pytest
import safetensors.numpy
import tokenizers

from bert_jax import errors, main
from bert_jax.inference import source
from bert_jax.interop import hugging_face
from bert_jax.model import bert_config
from bert_jax.pretraining import continued, init_from
from bert_jax.runtime import cli
from bert_jax.tokenization.tokenizer import SPECIAL, Tokenizer, read_vocab
from tests import models
from tests.data import preparation

PIECES = [*preparation.LETTERS, *(f'##{c}' for c in ('ing', 'sh'))]
WORDS = Tokenizer((*SPECIAL, *PIECES))


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  """A model for whole words and NSP, in transformers' format; no words are known."""
  c = bert_config.BertConfig(
    vocab_size=len(WORDS.vocab),
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    mlp_size=12,
    max_positions=32,
    type_vocab_size=2,
  )
  path = str(tmp_path_factory.mktemp('model') / 'hf')
  hugging_face.export(path, models.make_params(c), c, WORDS)
  return path


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  folder = tmp_path_factory.mktemp('texts')
  general = preparation.write_corpus(folder / 'general.txt', seed=1)
  text = (folder / 'general.txt').read_text()
  for old, new in (('bird', 'Aorta'), ('fish', 'STENT'), ('night', 'stents')):
    text = text.replace(old, new)
  (folder / 'domain.txt').write_text(text)
  return str(folder / 'domain.txt'), general


def make_config(model, texts, **changes):
  c = cli.load_config('configs/domain.py:steps=2,seq_length=32')
  c.init_from = model
  c.data.input, c.data.general = texts
  c.data.update(
    layout='sentences', min_chars=0, passes=1, workers=0, heldout=0.2
  )
  c.phases.batch_size, c.eval.sequences = (8,), 8
  c.update_from_flattened_dict(changes)
  return c


def read_tensors(path):
  return safetensors.numpy.load_file(os.path.join(path, 'model.safetensors'))


@pytest.mark.slow
def test_without_words_and_rate_the_model_comes_back(model, texts, tmp_path):
  run = str(tmp_path / 'run')
  main.run(make_config(model, texts, **{'optimizer.learning_rate': 0.0}), run)
  models.assert_same(read_tensors(f'{run}/export'), read_tensors(model))
  assert source.read(run).tokenizer == WORDS
  results = json.loads((tmp_path / 'run' / 'results.json').read_text())
  assert results['before'] == results['after']
  assert set(results['after']) == {'domain', 'general'}


def test_words_are_added_and_known_everywhere(model, texts, tmp_path, capsys):
  run = str(tmp_path / 'run')
  # Of the 24 words, aorta and stent are the only ones of the domain alone.
  c = make_config(model, texts, **{'data.add_words': 20})
  main.run(c, run)
  said = capsys.readouterr().out
  assert '20 words added to the vocabulary, which save ' in said
  assert 'embeddings and output biases, 20 of them the means of' in said
  assert '| general | ' in said and 'optimizer.learning_rate=0.008' in said
  words = read_vocab(f'{run}/export/vocab.txt')
  assert words[: WORDS.size] == WORDS.vocab and len(words) == WORDS.size + 20
  assert {'aorta', 'stent'} <= set(words) and 'stents' not in words
  here = source.read(f'{run}/export').tokenizer
  theirs = tokenizers.Tokenizer.from_file(f'{run}/export/tokenizer.json')
  ids = theirs.encode('Stents in an AORTA', add_special_tokens=False)
  assert ids.ids == here.ids(['Stents in an AORTA'])[0]
  assert ids.tokens[:2] == ['stent', '##s'] and 'aorta' in ids.tokens
  results = json.loads((tmp_path / 'run' / 'results.json').read_text())
  before, after = results['before']['domain'], results['after']['domain']
  assert before['pieces_per_word'] > 2 * after['pieces_per_word']
  assert before['words'] == after['words']
  # The same data, model and scores, if it is started again.
  first = read_tensors(f'{run}/export')
  main.run(c, run)
  models.assert_same(read_tensors(f'{run}/export'), first)
  # What was exported can be adapted again, and the run be continued.
  again = make_config(f'{run}/export', texts, **{'data.add_words': 1})
  taken = init_from.take_model(again, str(tmp_path / 'again'))
  assert taken.data.vocab_size == len(words) + 1
  sizes = {'num_layers': 1, 'hidden_size': 8, 'num_heads': 2, 'mlp_size': 12}
  longer = make_config('', texts, **{'optimizer.learning_rate': 1e-3})
  longer.model.update(sizes, max_positions=32)
  longer.continue_from, longer.data.general = run, ''
  taken = continued.take_run(longer, str(tmp_path / 'longer'))
  assert read_vocab(taken.data.vocab) == words


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'data.add_words': 99}, 'only .* words of the text .* give at most'),
    ({'data.add_words': 9, 'data.dir': 'd'}, 'without data.dir'),
    ({'init_from': ''}, 'rate=-1: -1, as in .* with init_from'),
    (
      {'init_from': '', 'optimizer.learning_rate': 1e-4},
      'are for pre-training',
    ),
    ({'data.general': 'none.txt'}, 'none.txt'),
    ({'optimizer.learning_rate': -0.5}, 'nothing else is below 0'),
    ({'model.activation': 'relu'}, "model.activation='gelu_tanh', not 'relu'"),
  ],
)
def test_what_cannot_be_is_said_in_one_line(
  model, texts, tmp_path, changes, message
):
  with pytest.raises(errors.UserError, match=message) as error:
    main.run(make_config(model, texts, **changes), str(tmp_path / 'run'))
  assert '\n' not in str(error.value)
