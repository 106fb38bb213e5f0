"""An exported model gives transformers' logits, ids and guesses."""

import pathlib
import re

import jax
import numpy as np
import pytest

from bert_jax.config import apply_arguments, model_config, recipes
from bert_jax.finetuning import encode
from bert_jax.inference import fill
from bert_jax.interop import hugging_face
from bert_jax.model import heads, parameters
from bert_jax.tokenization import tokenizer

PAIRS, LENGTH, PREDICTIONS = 100, 128, 8
LINES, MASKED, MOST = 1000, 50, 5


@pytest.fixture(scope='module')
def sentences(real):
  """Returns sentences of 20 to 300 characters, in their order."""
  path = min(pathlib.Path(real('books', '100_english_novels')).iterdir())
  text = ' '.join(path.read_text(encoding='utf-8-sig').split())
  found = re.split(r'(?<=[.!?])\s+', text)
  return [x for x in found if 20 <= len(x) <= 300]


def take(values, count):
  return [values[i * len(values) // count] for i in range(count)]


@pytest.fixture(scope='module')
def model(real, tmp_path_factory):
  """Returns the folder of an exported BERT-Mini with random weights."""
  c = apply_arguments(recipes.pretraining('mini'), 'profile=hf')
  path = real('vocab', 'bert-base-uncased', 'vocab.txt')
  words = tokenizer.Tokenizer.load(path, True)
  c.data.vocab_size = words.size
  bert = model_config(c)
  made = parameters.init(heads.PretrainingModel(bert), jax.random.key(0))
  made = parameters.drop_padding_rows(jax.device_get(made), words.size)
  rng = np.random.default_rng(0)  # so that no bias is 0 and no scale 1
  made = jax.tree.map(
    lambda x: x + 0.1 * rng.standard_normal(x.shape, np.float32), made
  )
  folder = str(tmp_path_factory.mktemp('export'))
  hugging_face.export(folder, made, bert, words)
  return folder


def make_batch(words, pairs):
  """Returns encoded pairs, with some tokens of each masked."""
  texts = (encode.tokenize(words, x) for x in zip(*pairs, strict=True))
  rows = encode.join(words, *texts, LENGTH)
  batch = rows.make_batch(np.arange(len(pairs)), LENGTH, words.pad_id)
  plain, places = batch['input_ids'].copy(), []
  for row in batch['input_ids']:
    free = ~np.isin(row, [words.pad_id, words.cls_id, words.sep_id])
    spread = np.linspace(0, free.sum() - 1, PREDICTIONS)
    places.append(np.flatnonzero(free)[spread.round().astype(int)])
    row[places[-1]] = words.mask_id
  return batch | {'masked_lm_positions': np.array(places)}, plain


def test_logits_ids_and_guesses_are_equal(model, sentences, in_transformers):
  params, bert, words, *_ = hugging_face.read(model)
  starts = take(range(len(sentences) - 1), PAIRS)
  pairs = [sentences[i : i + 2] for i in starts]
  batch, ids = make_batch(words, pairs)
  module = heads.PretrainingModel(bert, 'nsp' in params)
  with jax.default_matmul_precision('highest'):
    mlm, nsp = jax.jit(module.apply)({'params': params}, batch)
  lines, masked = take(sentences, LINES), []
  for line in take(lines, MASKED):
    parts = line.split()
    parts[len(parts) // 2] = '[MASK]'
    masked.append(' '.join(parts))
  job = {'model': model, 'pairs': pairs, 'lines': lines, 'masked': masked}
  there = in_transformers('read_export', job | {'most': MOST}, batch)
  assert np.array_equal(ids, there['ids'])
  assert np.array_equal(batch['segment_ids'], there['segments'])
  for name, x in (('mlm', mlm), ('nsp', nsp)):
    # float32 keeps seven digits, so logits of 10 cannot agree to 1e-5.
    scale = max(1, np.abs(there[name]).max())
    error = np.abs(x - there[name]).max() / scale
    print(f'{name}: logits of up to {scale:.1f} differ by {error:.1e} of that')
    assert error <= 1e-5
  rows = np.split(there['lines'], there['ends'][:-1])
  same = sum(
    words.encode(line)['input_ids'] == row.tolist()
    for line, row in zip(lines, rows, strict=True)
  )
  guesses = [
    [words.vocab.index(word) for word, _ in found]
    for line in masked
    for found in fill.fill(params, bert, words, line, MOST)[:1]
  ]
  equal = sum(map(list.__eq__, guesses, there['guesses'].tolist()))
  print(f'{same} of {LINES} lines have the same ids, {equal} of {MASKED} masks')
  assert (same, equal) == (LINES, MASKED)
