"""GLUE's, SWAG's and SQuAD's files are read and encoded as by transformers."""

import csv
import os
import pathlib

import numpy as np
import pytest

from bert_jax.finetuning import choices, encode, span_windows
from bert_jax.finetuning.readers import (
  examples,
  glue,
  splits,
  squad,
)
from bert_jax.interop import vocabulary
from bert_jax.model import classifier
from bert_jax.tokenization import fast_tokenizer, tokenizer
from tests import bpe

LENGTH = 128
FILES = {
  name: {x: f'{x}.tsv' for x in ('train', 'dev', 'test')} | dict(known.more)
  for name, known in glue.TASKS.items()
}
# Of SQuAD: tokens of a window, between two windows, of a question.
WINDOW, STRIDE, QUERY = 384, 128, 64
LEAST = 0.995  # of English answers


def read_glue(path, columns, label, headless):
  """Returns [(text, pair or '', label)] of a file, as Hugging Face reads it."""
  with open(path, encoding='utf-8-sig') as file:
    rows = csv.DictReader(
      file, headless or None, delimiter='\t', quoting=csv.QUOTE_NONE
    )
    names = [name for name in (*columns, label) if name]
    # Their script drops rows in which a value is missing.
    rows = [row for row in rows if all(row[x] is not None for x in names)]
  return [
    tuple(row[name] if name else '' for name in (*columns, label))
    for row in rows
  ]


def count_differences(in_transformers, vocab, encoded, texts, pairs):
  """Returns how many rows transformers encodes otherwise."""
  words = tokenizer.Tokenizer.load(vocab, True)
  rows = np.arange(len(encoded.ends))
  ours = encoded.make_batch(rows, LENGTH, words.pad_id)
  job = {'vocab': vocab, 'lowercase': True, 'length': LENGTH}
  theirs = in_transformers('encode', job | {'texts': texts, 'pairs': pairs}, {})
  same = np.ones(len(rows), bool)
  for name, x in theirs.items():
    same &= (ours[name] == x).all(-1)
  print(f'{len(same):,} rows, {(~same).sum()} differ')
  return (~same).sum()


@pytest.mark.parametrize(
  'name, split', [(name, x) for name, files in FILES.items() for x in files]
)
def test_glue(real, in_transformers, name, split):
  known = glue.TASKS[name]
  path = real('glue', os.path.normpath(f'{known.folder}/{FILES[name][split]}'))
  vocab = real('vocab', 'bert-base-uncased', 'vocab.txt')
  test = split not in ('train', 'dev', 'dev_mismatched')
  rows = examples.read_glue(name, split, path)
  label, headless = ('', ()) if test else (known.label, known.headless)
  columns = known.text, known.pair
  there = read_glue(path, columns, label, headless)
  texts, pairs, labels = zip(*there, strict=True)
  assert [*rows.texts] == [*texts]
  if not test:
    assert [x.label for x in rows.units] == [*labels]
  words = tokenizer.Tokenizer.load(vocab, True)
  tokens = (x and encode.tokenize(words, x) for x in (rows.texts, rows.pairs))
  encoded = encode.join(words, *tokens, LENGTH)
  pairs = pairs if known.pair else None
  assert not count_differences(in_transformers, vocab, encoded, texts, pairs)


def test_swag(real, in_transformers):
  path = real('swag', 'train_sample91.csv')
  vocab = real('vocab', 'bert-base-uncased', 'vocab.txt')
  with open(path, encoding='utf-8', newline='') as file:
    there = list(csv.DictReader(file))
  columns = splits.Columns('sent1', 'sent2', 'ending', 'label')
  rows = choices.TASK.read(path, columns, True)
  words = tokenizer.Tokenizer.load(vocab, True)
  split, _ = choices.TASK.encode(encode.How(words, LENGTH), rows, ())
  assert split.labels.tolist() == [int(row['label']) for row in there]
  encoded = split.encoded
  pairs = [
    (row['sent1'], f'{row["sent2"]} {row[f"ending{i}"]}')
    for row in there
    for i in range(4)
  ]
  texts, pairs = zip(*pairs, strict=True)
  assert not count_differences(in_transformers, vocab, encoded, texts, pairs)


def count_recovered(split):
  """Returns how many first answers the tokens of a window give back exactly."""
  found = {}
  for row in np.flatnonzero(split.labels[:, 0]):
    question = int(split.questions[row])
    ends = split.labels[row] + split.tokens[row] - split.encoded.firsts[row]
    found[question] = split.get_text(question, *ends)
  return sum(found.get(i) == x[0] for i, x in enumerate(split.answers))


@pytest.mark.parametrize(
  'pattern', ['dev-v1.1.json', 'KorQuAD_v1.0_dev.json', 'xquad/*.json']
)
def test_squad(real, in_transformers, pattern):
  lowercase = pattern == 'dev-v1.1.json'
  name = 'bert-base-uncased' if lowercase else 'bert-base-multilingual-cased'
  vocab = real('vocab', name, 'vocab.txt')
  words = tokenizer.Tokenizer.load(vocab, lowercase)
  settings = classifier.Spans(STRIDE, QUERY, 30, None)
  for path in sorted(pathlib.Path(real('squad')).glob(pattern)):
    how = encode.How(words, WINDOW, settings=settings)
    split, _ = span_windows.encode_questions(how, squad.read(str(path)))
    count = split.count()
    share = count_recovered(split) / count
    print(f'{path.name}: {count:,} questions, answers recovered {share:.2%}')
    assert not lowercase or share >= LEAST
    job = {'path': str(path), 'vocab': vocab, 'lowercase': lowercase}
    job |= {'length': WINDOW, 'stride': STRIDE, 'query': QUERY}
    there = in_transformers('make_windows', job, {})
    compared = np.isin(split.questions, there['questions'])
    assert np.array_equal(split.questions[compared], there['questions'])
    ends = split.encoded.ends[compared]
    starts = ends - split.lengths[compared]
    rows = np.split(there['ids'], there['ends'][:-1])
    differ = sum(
      not np.array_equal(split.encoded.ids[a:b], row)
      for a, b, row in zip(starts, ends, rows, strict=True)
    )
    print(f'transformers: {len(rows):,} windows, {differ} differ')
    assert not differ


def test_a_tokenizer_of_the_library(real, in_transformers, tmp_path):
  """AutoTokenizer gives the same ids of texts in 20 languages, and of pairs."""
  paths = sorted(pathlib.Path(real('multilingual', 'udhr')).glob('*.txt'))
  lines = [x for path in paths for x in path.read_text('utf-8').split('\n')]
  lines = [*lines, 'the [MASK] of it', 'a  [SEP] b', ' <mail>', '']
  text = bpe.make(2000, tuple(lines)).encode()
  words = fast_tokenizer.parse(text, 'tokenizer.json')
  made = vocabulary.make_files(words, LENGTH)
  for name, content in (
    made | {'config.json': '{"model_type": "bert"}'}
  ).items():
    (tmp_path / name).write_text(content)
  job = {'folder': str(tmp_path), 'length': LENGTH, 'texts': lines}
  for pairs in (None, lines[7:] + lines[:7]):
    how = encode.How(words, LENGTH)
    encoded = encode.encode_texts(how, lines, pairs)
    ours = encoded.make_batch(np.arange(len(lines)), LENGTH, words.pad_id)
    theirs = in_transformers('encode', job | {'pairs': pairs}, {})
    print(f'{len(lines):,} rows, {encoded.truncated:,} of them truncated')
    for name, x in theirs.items():
      assert np.array_equal(ours[name], x), name
