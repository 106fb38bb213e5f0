"""Which documents are used, how often, and in how many shards."""

import dataclasses
import shutil

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import (
  dataset,
  document_spill,
  prepare,
  stages,
  summary,
)
from tests.data.preparation import (
  ONE,
  digest,
  make_recipe,
  write_corpus,
  write_vocab,
)


@pytest.mark.parametrize('weights', [(), (0.5, 1.0)])
def test_of_copies_the_one_with_most_passes_is_kept(
  corpus, prepared, tmp_path, weights
):
  copy = str(tmp_path / 'copy.txt')
  shutil.copy(corpus, copy)
  recipe = make_recipe(corpus, inputs=(corpus, copy), weights=weights)
  manifest = prepare.prepare(recipe, str(tmp_path / 'data'), ONE)
  for length, made in prepared[1]['lengths'].items():
    assert manifest['lengths'][length]['pairs'] == made['pairs']
  assert manifest['cleaned'] == {'duplicate_documents': 120}
  assert manifest['documents']['train'] == prepared[1]['documents']['train']
  assert [i['documents'] for i in manifest['inputs']] == [120, 120]


def test_weights_multiply_passes(corpus, tmp_path):
  def pairs(name, **changes):
    output = str(tmp_path / name)
    recipe = make_recipe(corpus, lengths=(64,), **changes)
    prepare.prepare(recipe, output, ONE)
    return {n: h for n, h in digest(output).items() if n.endswith('.pairs')}

  weighted = pairs('a', passes=2, weights=(1.5,))
  assert weighted == pairs('b', passes=3) != pairs('c', passes=2)


def test_of_many_pieces_only_the_first_documents_are_read(
  corpus, tmp_path, monkeypatch
):
  monkeypatch.setattr(sources, '_SMALLEST', 2000)
  recipe = make_recipe(corpus, max_documents=70)
  manifest = prepare.prepare(recipe, str(tmp_path / 'data'), ONE)
  assert manifest['inputs'][0]['documents'] == 70


def test_sentences_are_split_by_the_language_of_their_input(tmp_path):
  inputs = []
  for name in 'ab':  # two sentences in German, three in English
    inputs.append(str(tmp_path / f'{name}.txt'))
    texts = (f'{name}, am {i}. Mai kam sie. Er ging.' for i in range(60))
    (tmp_path / f'{name}.txt').write_text('\n\n'.join(texts))

  def count(language):
    how = {'layout': 'paragraphs', 'language': language, 'inputs': inputs}
    recipe = make_recipe('', **how)
    manifest = prepare.prepare(recipe, str(tmp_path / language), ONE)
    return manifest['sentences'] / manifest['documents']['train']

  assert (count('de'), count('en')) == (2, 3)
  assert 2.3 < count('de,en') < 2.7


def test_a_shard_without_passes_is_empty_and_does_no_harm(tmp_path):
  corpus = write_corpus(tmp_path / 'corpus.txt', seed=12)

  def make(weight):
    recipe = make_recipe(corpus, lengths=(32,), weights=(weight,))
    return prepare.prepare(recipe, str(tmp_path / f'{weight}'), ONE)

  # By their hashes, few documents have a pass, all of them in the second shard.
  made = make(0.02)
  train = [s['files']['32'] for s in made['shards'] if s['split'] == 'train']
  assert not train[0]['records'] and train[1]['records']
  split = dataset.open_split(str(tmp_path / '0.02'), 'train', 32)
  assert len(split.reader) == made['lengths']['32']['rows']


def test_shards_have_many_rows_that_documents_share(tmp_path):
  recipe = make_recipe(
    'a', lengths=(32, 1024), rows='full_sentences', shards=64
  )
  # 64 rows of 1024 tokens, of 4 bytes each, are 256 kB.
  for size, count in ((64 << 18, 64), ((64 << 18) - 1, 32), (3 << 18, 2)):
    segments = [document_spill.Segment(0, 'a', 0, size, 50 * 64)]
    for rows, expected in (('full_sentences', count), ('pairs', 64)):
      changed = dataclasses.replace(recipe, rows=rows)
      made = stages._shards(changed, segments, (0.0,), 1, str(tmp_path))
      assert sum(x.split == 'train' for x in made) == expected


@pytest.mark.parametrize(
  'layout, text, message',
  [
    (
      'sentences',
      '\x07\n',
      r"no text \(counted .'control_characters': 1.\); give",
    ),
    ('sentences', 'one.\nof two.\n', r'holds 1 document\(s\).* put blank'),
    ('files', 'one document.\n\nnot two.\n', r"'files'; .* Give more text"),
  ],
)
def test_too_little_text_is_an_error(tmp_path, layout, text, message):
  path = tmp_path / 'corpus.txt'
  path.write_text(text)
  recipe = make_recipe(str(path), layout=layout)
  with pytest.raises(errors.UserError, match=message):
    prepare.prepare(recipe, str(tmp_path / 'data'), ONE)
  assert not (tmp_path / 'data').exists()


def test_the_number_of_shards_follows_the_size_of_the_text():
  count = stages._count_shards
  assert count(1) == count(16 << 30) == 256  # 256 x 64 MB
  assert count((16 << 30) + 1) == 512
  # Compressed text has about five times its size.
  assert sources.Range(0, 'a.txt.bz2', 0, 7, 7).text_bytes == 35


def test_every_token_that_is_in_no_row_is_counted(tmp_path):
  # Each word occurs once, and some sentences are longer than a row.
  words = [str(k) for k in range(1000, 4000)]
  lines = [' '.join(words[k : k + 50]) for k in range(0, 3000, 50)]
  lines = [x.replace(' ', '\n', k % 7) for k, x in enumerate(lines)]
  (tmp_path / 'a.txt').write_text('\n\n'.join(lines))
  write_vocab(tmp_path / 'v.txt', *words)
  changes = {'vocab': str(tmp_path / 'v.txt'), 'vocab_size': 3005, 'passes': 1}
  recipe = make_recipe(str(tmp_path / 'a.txt'), lengths=(32, 128), **changes)
  made = prepare.prepare(recipe, str(tmp_path / 'data'), ONE)
  for length, row in made['lengths'].items():
    split = dataset.open_split(str(tmp_path / 'data'), 'train', int(length))
    every = np.arange(row['rows'])
    rows = split.reader.rows(every, 2, 3)['input_ids']
    used = set(rows.ravel().tolist()) - {0, 2, 3}
    assert row['unused_tokens'] == made['tokens'] - len(used)
    assert row['unused_share'] == round(
      row['unused_tokens'] / made['tokens'], 6
    )
  assert made['lengths']['32']['unused_tokens'] > 10
  text = '\n'.join(summary.describe(made))
  share = made['lengths']['32']['unused_share']
  assert f'random, {share:.2%} of the tokens in no row' in text
