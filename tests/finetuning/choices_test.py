"""Tests of choosing, from files to a whole run of a tiny model."""

import functools
import json

import jax
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.config import recipes
from bert_jax.finetuning import choices, supervised, training
from bert_jax.finetuning.readers import splits
from bert_jax.parallel import row_keys
from tests import models
from tests.finetuning import made

JSONL = splits.Columns('context', 'question', 'choices', 'label')


def write(path, rows):
  path.write_text('\n'.join(json.dumps(row) for row in rows))
  return str(path)


def read(tmp_path, rows):
  return read_table(write(tmp_path / 'rows.jsonl', rows), JSONL)


def read_table(path, columns):
  return choices.TASK.read(path, columns, False)


def make_row(given, label=0, question='e'):
  values = 'the cat', question, given, label
  return dict(zip(JSONL, values, strict=True))


def test_swags_columns_are_read(tmp_path):
  path = tmp_path / 'swag.csv'
  path.write_text(
    ',video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n'
    '0,v,"The cat, a dog.",The,a,b,c,"d, e",3\n'
  )
  columns = splits.Columns('sent1', 'sent2', 'ending')
  [pairs] = read_table(str(path), columns).pairs
  assert pairs == ('The a', 'The b', 'The c', 'The d, e')
  rows = read_table(str(path), columns._replace(pair=''))
  assert rows.pairs[0][3] == ' d, e' and rows.units[0].label == ''


def test_columns_of_choices_may_be_numbered_from_1(tmp_path):
  columns = splits.Columns('premise', '', 'choice', 'label')
  row = {'premise': 'p', 'choice1': 'a', 'choice2': 'b', 'label': 0}
  path = write(tmp_path / 'copa.jsonl', [row])
  assert read_table(path, columns).pairs == [(' a', ' b')]


NO_LIST = "line 1 .*'choices' what is not a list of two or more texts"


@pytest.mark.parametrize(
  'rows, words',
  [
    ([make_row(['a', 'b']), make_row(['a'] * 3)], 'line 2 has 3 choices, line'),
    ([make_row(['a'])], NO_LIST),
    ([make_row('ab')], NO_LIST),
    ([make_row(['a', 1])], NO_LIST),
    ([make_row(['a', 'b']), {'context': 'a', 'question': 'b'}], 'line 2 .*wh'),
    (
      [{'context': 'a', 'question': 'b'}],
      "no column 'choices' with lists, nor",
    ),
    ([make_row(['a', 'b'], 0, 3)], "line 1 has in 'question' a int, not"),
    ([make_row(['a', None])], NO_LIST),
    (
      [{'context': 'a', 'question': 'b', 'choices0': 'c', 'choices2': 'd'}],
      'nor choices1 and choices2',
    ),
  ],
)
def test_malformed_rows_are_refused(tmp_path, rows, words):
  with pytest.raises(errors.UserError, match=words):
    read(tmp_path, rows)


def make(tmp_path, dev=(), **changes):
  c = recipes.finetuning()
  c.task = 'choice'
  c.data.input = str(tmp_path)
  c.data.update(text='context', pair='question', choices='choices')
  c.data.label = 'label'
  c.update_from_flattened_dict(changes)
  train = [make_row(['cat', 'the dogs', 'e'], 2), make_row(['e', 'e', 'cats'])]
  write(tmp_path / 'train.jsonl', train)
  write(tmp_path / 'dev.jsonl', dev or train[:1])
  return c, training.read(choices.TASK, c, models.TOKENIZER)


@pytest.mark.parametrize(
  'row, message',
  [
    *(
      (make_row(['a', 'b', 'c'], x), 'is not learnt .* are 0, 1, 2. Corr')
      for x in (3, 'b', -2, 1.5)
    ),
    (make_row(['a', 'b']), 'train has 3, dev has 2; fill'),
  ],
)
def test_dev_rows_unlike_those_of_training_are_refused(tmp_path, row, message):
  with pytest.raises(errors.UserError, match=message):
    make(tmp_path, [row])


def make_batch(tmp_path, length=12):
  """Returns a batch of 2 rows of 3 choices, and their data."""
  _, data = make(tmp_path)
  split = data.splits['train']
  batch = split.make_batch(np.array([1, 0]), length, data.tokenizer.pad_id)
  return batch, split


def test_a_batch_has_all_choices_of_its_rows(tmp_path):
  batch, split = make_batch(tmp_path)
  assert batch['input_ids'].shape == (2, 3, 12)  # [B, N, S]
  assert batch['labels'].tolist() == [0, 2]
  first = split.encoded.ids[: split.encoded.ends[0]]  # choice 0 of row 0
  n = len(first)
  np.testing.assert_array_equal(batch['input_ids'][1, 0, :n], first)
  assert batch['input_mask'][1, 0].tolist() == [1] * n + [0] * (12 - n)
  # [CLS] the cat [SEP] e cat [SEP]
  assert batch['segment_ids'][1, 0, :8].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]


def test_each_choice_has_dropout_of_its_own_on_any_device(
  tmp_path, monkeypatch
):
  def draw(module, params, pairs, key):
    return jax.random.uniform(key, (len(pairs['input_ids']), 1))

  @functools.partial(jax.jit, static_argnums=1)
  def compute(batch, first):
    key = row_keys.for_rows(jax.random.key(0), first, first)
    found = choices.TASK.compute_sums(None, None, batch, key)
    return found[1]['logits']

  monkeypatch.setattr(supervised, 'apply', draw)
  batch, _ = make_batch(tmp_path)
  whole = compute(batch, 0)
  assert len(np.unique(whole)) == 6
  second = compute({name: x[1:] for name, x in batch.items()}, 1)
  np.testing.assert_array_equal(second, whole[1:])


def write_rows(folder):
  """Writes rows in which the choice with a cat is right."""
  folder.mkdir()
  rows = []
  for i in range(48):
    given = ['the dog', 'dogs e', 'the the']
    given[i % 3] = ['cat', 'the cats', 'e cat'][i // 3 % 3]
    rows.append({'context': 'the ' * (i % 4), 'of': given, 'label': i % 3})
  write(folder / 'train.jsonl', rows)
  write(folder / 'dev.jsonl', rows[:10])
  return str(folder)


def configure(root):
  c = made.configure(root, write_rows(root / 'rows'))
  c.task, c.data.text, c.data.choices = 'choice', 'context', 'of'
  return c


def test_null_among_numbered_choices_is_no_empty_choice(tmp_path):
  row = {
    'sent1': 'a',
    'sent2': 'b',
    'ending0': 'c',
    'ending1': None,
    'label': 0,
  }
  path = write(tmp_path / 'x.jsonl', [row])
  columns = splits.Columns('sent1', 'sent2', 'ending', 'label')
  with pytest.raises(errors.UserError, match="line 1 has no text in 'ending1'"):
    read_table(path, columns)


def test_choices_may_be_a_list(tmp_path):
  rows = read(tmp_path, [make_row(['cat', 'dog'], 1), make_row(['the', ''])])
  assert rows.texts == ['the cat'] * 2
  assert [x.label for x in rows.units] == ['1', '0']
  assert rows.pairs == [('e cat', 'e dog'), ('e the', 'e ')]


def test_each_choice_is_a_pair_with_its_row(tmp_path):
  other = make_row(['e', 'e', 'the cats']) | {'context': 'dogs'}
  _, data = make(tmp_path, [make_row(['cat', 'the dogs', 'e'], 2), other])
  rows = data.splits['dev']
  assert (rows.size, rows.choices, len(rows.encoded.ends)) == (2, 3, 6)
  assert rows.labels.tolist() == [2, 0]
  pairs = ['e cat', 'e the dogs', 'e e', 'e e', 'e e', 'e the cats']
  texts = ['the cat'] * 3 + ['dogs'] * 3
  expected = made.encode_rows(texts, pairs, 128)
  np.testing.assert_array_equal(rows.encoded.ids, expected.ids)
  assert data.labels == ()
  assert data.manifest['read'][0].startswith(
    'train: 2 rows, 3 choices, longest 9 tokens ('
  )
