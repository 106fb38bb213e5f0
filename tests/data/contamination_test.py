"""Tests of the search for evaluation text in the training text."""

import dataclasses
import gzip
import json
import random
import re

import pytest

from bert_jax import errors
from bert_jax.corpus import document
from bert_jax.data import contamination, manifest_file, prepare
from tests import commands
from tests.data import preparation

WORDS = [f'w{i}' for i in range(40)]


def write_data(folder, text):
  """Returns a folder whose manifest says that its text is this one."""
  path = str(folder / 'text.txt')
  size = (folder / 'text.txt').write_bytes(text.encode())
  recipe = preparation.make_recipe(path, layout='paragraphs').to_dict()
  inputs = [{'files': [{'path': path, 'bytes': size}]}]
  about = {'recipe': recipe, 'inputs': inputs, 'lengths': {}, 'excluded': []}
  manifest_file.write(str(folder), about)
  return str(folder)


def search_naively(text, row):
  """Returns the share of a row's n-grams that a text contains."""
  [one, other] = (
    ' '.join(re.findall(r'\w+', x.lower())) + ' ' for x in (text, row)
  )
  words = other.split()
  grams = [
    ' '.join(words[i : i + 13]) + ' ' for i in range(max(len(words) - 12, 0))
  ]
  return sum(x in one for x in grams) / len(grams) if grams else None


def test_what_is_planted_is_found_and_nothing_else(tmp_path):
  draw = random.Random(1)
  documents = [draw.choices(WORDS, k=draw.randrange(60)) for _ in range(40)]
  rows = [draw.choices(WORDS, k=draw.randrange(5, 30)) for _ in range(30)]
  for k in range(10):  # parts of the text, within other words
    planted = next(x for x in documents[k:] if len(x) > 12 + k)
    rows[k][3:3] = planted[k : 13 + k]
  for k in range(10, 20):  # a word less than is needed
    rows[k] = [x for x in documents if len(x) > 20][k % 5][:12] + ['new']
  text = '\n\n'.join(' '.join(x).title() + '.' for x in documents)
  data = write_data(tmp_path, text)
  given = [
    contamination.Row('f', i, ', '.join(x)) for i, x in enumerate(rows, 1)
  ]
  found, holding = contamination.find(data, given, workers=0)
  for x, row in zip(found, given, strict=True):
    assert x['share'] == search_naively(text, row.text)
  shares = [x['share'] for x in found]
  assert all(shares[:10]) and not any(shares[10:])
  assert search_naively(text, found[3]['sample']) == 1
  short = contamination.Row('f', 1, 'w1 w2')
  assert contamination.find(data, [short], workers=0)[0][0]['share'] is None
  # Processes find the same.
  assert contamination.find(data, given, workers=2) == (found, holding)


def test_words_may_be_in_different_paragraphs_of_a_document(tmp_path):
  words = [f'w{i}' for i in range(400)]
  lines = [' '.join(words[i : i + 7]) for i in range(0, 400, 7)]
  data = write_data(tmp_path, '\n'.join(lines))
  rows = [
    contamination.Row('f', i, ' '.join(words[i : i + 13])) for i in range(387)
  ]
  found, _ = contamination.find(data, rows, workers=0)
  assert all(x['share'] == 1 for x in found)
  assert [x['sample'] for x in found] == [row.text for row in rows]


def test_text_of_which_a_part_is_gone_is_not_called_clean(tmp_path):
  folder = tmp_path / 'text'
  folder.mkdir()
  for name in 'ab':
    preparation.write_corpus(folder / name, seed=ord(name))
  recipe = preparation.make_recipe(str(folder))
  prepare.prepare(recipe, str(tmp_path / 'data'), preparation.ONE)
  (folder / 'a').unlink()
  rows = [contamination.Row('f', 1, ' '.join(WORDS))]
  with pytest.raises(errors.UserError, match='text/a is gone'):
    contamination.find(str(tmp_path / 'data'), rows, workers=0)


def test_prepare_leaves_out_the_documents_that_are_listed(tmp_path):
  draw = random.Random(2)
  texts = [' '.join(draw.choices(WORDS, k=30)) for _ in range(40)]
  (tmp_path / 'text').write_text('\n\n'.join(texts))
  preparation.write_vocab(tmp_path / 'vocab.txt', *WORDS)
  named, one = str(tmp_path / 'named'), prepare.local_runner(0)
  recipe = preparation.make_recipe(
    str(tmp_path / 'text'),
    layout='paragraphs',
    vocab=str(tmp_path / 'vocab.txt'),
    vocab_size=len(WORDS) + 5,
  )
  everything = str(tmp_path / 'run' / 'data')
  prepare.prepare(recipe, everything, one)
  (tmp_path / 'dev.tsv').write_text(f'{texts[3][20:]} new {texts[17][9:]}\n')
  commands.run(
    contamination,
    f'--data={tmp_path}/run',  # which has data of its own
    f'--eval={tmp_path}/dev.tsv',
    f'--output={tmp_path}/rows.json',
    f'--documents={named}',
  )
  found = document.read_list(named)
  texts_found = [document.Document([texts[k]]) for k in (3, 17)]
  assert found == set(map(document.identify, texts_found))
  [row] = json.loads((tmp_path / 'rows.json').read_text())['rows']
  assert 0 < row['share'] < 1 and row['line'] == 1
  recipe = dataclasses.replace(recipe, exclude=named)
  manifest = prepare.prepare(recipe, str(tmp_path / 'less'), one)
  assert manifest['inputs'][0]['documents'] == 38
  assert manifest['cleaned']['excluded_documents'] == 2
  less = str(tmp_path / 'less')
  rows = contamination.read_rows(str(tmp_path / 'dev.tsv'))
  (row,), again = contamination.find(less, rows, workers=0)
  assert row['share'] == 0 and again == found
  with pytest.raises(errors.UserError, match="exclude was '', is"):
    prepare.prepare(recipe, everything, one)
  document.write_list(named, found | {'00' * 16})
  with pytest.raises(errors.UserError, match='put the old list back'):
    prepare.prepare(recipe, less, one)


def test_text_that_data_are_not_made_of_is_not_searched(tmp_path):
  texts = [' '.join(f'{k}{word}' for word in WORDS[:15]) for k in range(40)]
  texts[1] = ' '.join('abcdefghijklm')  # shorter than min_chars
  (tmp_path / 'text').write_text('\n\n'.join(texts))
  recipe = preparation.make_recipe(
    str(tmp_path / 'text'),
    layout='paragraphs',
    min_chars=50,
    max_documents=20,
    shards=1,
  )
  data = str(tmp_path / 'data')
  prepare.prepare(recipe, data, preparation.ONE)
  rows = [contamination.Row('f', i, x) for i, x in enumerate(texts)]
  found, _ = contamination.find(data, rows, workers=0)
  assert [i for i, x in enumerate(found) if x['share']] == [0, *range(2, 21)]
  # Of the first 20 documents 2, 3 and 20 are left out, of the next 21 and 23.
  rows = [rows[k] for k in (2, 3, 20, 21, 23, 30)]
  found, holding = contamination.find(data, rows, workers=0)
  assert [x['share'] for x in found] == [1, 1, 1, 0, 0, 0]
  bad = [document.Document([texts[k]]) for k in (2, 3, 20, 21, 23)]
  assert holding == set(map(document.identify, bad))
  document.write_list(str(tmp_path / 'named'), holding)
  recipe = dataclasses.replace(recipe, exclude=str(tmp_path / 'named'))
  made = prepare.prepare(recipe, str(tmp_path / 'less'), preparation.ONE)
  assert made['inputs'][0]['documents'] == 20
  found, again = contamination.find(str(tmp_path / 'less'), rows, workers=0)
  assert not any(x['share'] for x in found) and again == holding


def test_a_list_of_other_documents_is_an_error(tmp_path):
  (tmp_path / 'text').write_text('w1 w2 w3\n\nw4 w5 w6')
  document.write_list(str(tmp_path / 'named'), ['00' * 16])
  recipe = preparation.make_recipe(
    str(tmp_path / 'text'), exclude=str(tmp_path / 'named')
  )
  with pytest.raises(errors.UserError, match='lists no document of'):
    prepare.prepare(recipe, str(tmp_path / 'data'), prepare.local_runner(0))
  # The second is what --output writes, not --documents.
  for content in (b'\xff', b'{"rows": []}', b'00' * 15):
    (tmp_path / 'named').write_bytes(content)
    with pytest.raises(errors.UserError, match='cannot read .*named'):
      document.read_list(str(tmp_path / 'named'))


def test_rows_are_lines_texts_of_json_or_sentences_of_conll(tmp_path):
  (tmp_path / 'a.tsv').write_text('one\ttwo\n\nthree\n')
  (tmp_path / 'b.jsonl').write_text(
    '{"x": "one", "y": ["two", 3]}\n{broken\n["a"]'
  )
  (tmp_path / 'c.json').write_text(
    json.dumps({'d': [{'q': 'one'}, {'q': 'two'}]})
  )
  (tmp_path / 'd.conll').write_text('one O\ntwo B-x\n\r\nthree\tO\n')
  texts = [
    (x.line, ' '.join(x.text.split()))
    for name in ('a.tsv', 'b.jsonl', 'c.json', 'd.conll')
    for x in contamination.read_rows(str(tmp_path / name))
  ]
  assert texts == [
    *((1, 'one two'), (3, 'three')),
    *((1, 'one two'), (2, '{broken'), (3, 'a')),
    *((1, 'one'), (2, 'two')),
    *((1, 'one two'), (2, 'three')),
  ]
  assert len(contamination.read_rows(f'{tmp_path}/a.*,{tmp_path}/c.json')) == 4


def test_the_table_counts_rows_that_are_long_enough():
  made = [('a', 0.5, 20), ('a', 0.0, 13), ('a', None, 3), ('b', 1.0, 14)]
  lines = contamination.summarise(
    [
      {'path': path, 'line': 7, 'words': words, 'share': share, 'sample': 'x y'}
      for path, share, words in made
    ]
  )
  assert lines[1].split() == ['3', '2', '1', '50.00%', 'a']
  assert lines[2].split() == ['1', '1', '1', '100.00%', 'b']
  assert lines[3].startswith('b line 7: 100%') and '"x y"' in lines[3]


def test_what_cannot_be_read_is_said(tmp_path):
  whole = gzip.compress(b'one two three')
  (tmp_path / 'x.tsv.gz').write_bytes(whole[:-9])
  with pytest.raises(
    errors.UserError, match='cannot read .*x.tsv.gz.*is it whole'
  ):
    contamination.read_rows(str(tmp_path / 'x.tsv.gz'))
  (tmp_path / 'x.json').write_text('{')
  with pytest.raises(errors.UserError, match='x.json'):
    contamination.read_rows(str(tmp_path / 'x.json'))
  (tmp_path / 'x.txt').write_text('one two', 'utf-16')
  with pytest.raises(errors.UserError, match='UTF-16; convert it'):
    contamination.read_rows(str(tmp_path / 'x.txt'))
  with pytest.raises(errors.UserError, match='no_such'):
    contamination.read_rows(str(tmp_path / 'no_such'))
  with pytest.raises(errors.UserError, match='not prepared data'):
    contamination.find(str(tmp_path), [])
