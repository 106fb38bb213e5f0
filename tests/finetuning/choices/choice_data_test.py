"""Tests of reading and encoding rows of choices."""

import json

import numpy as np
import pytest

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.finetuning import task_data
from bert_jax.finetuning.choices import choice_data
from tests import models
from tests.finetuning import made

JSONL = ('context', 'question', 'choices')


def read(tmp_path, rows, columns=JSONL):
  path = tmp_path / 'rows.jsonl'
  path.write_text('\n'.join(json.dumps(row) for row in rows))
  return choice_data.read_file(str(path), columns, 'label')


def make_row(choices, label=0, question='e'):
  return {
    'context': 'the cat',
    'question': question,
    'choices': choices,
    'label': label,
  }


def test_choices_may_be_a_list(tmp_path):
  rows = read(tmp_path, [make_row(['cat', 'dog'], 1), make_row(['the', ''])])
  assert rows.texts == ['the cat'] * 2 and rows.labels == ['1', '0']
  assert rows.pairs == [('e cat', 'e dog'), ('e the', 'e ')]


def test_swags_columns_are_read(tmp_path):
  path = tmp_path / 'swag.csv'
  path.write_text(
    ',video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n'
    '0,v,"The cat, a dog.",The,a,b,c,"d, e",3\n'
  )
  columns = 'sent1', 'sent2', 'ending'
  [pairs] = choice_data.read_file(str(path), columns, 'label').pairs
  assert pairs == ('The a', 'The b', 'The c', 'The d, e')
  rows = choice_data.read_file(str(path), ('sent1', '', 'ending'))
  assert rows.pairs[0][3] == ' d, e' and rows.labels is None


@pytest.mark.parametrize(
  'rows, words',
  [
    (
      [make_row(['a', 'b']), make_row(['a'] * 3)],
      'line 2 has 3 choices, line 1',
    ),
    ([make_row(['a'])], "line 1: 'choices' is no list of two or more texts"),
    ([make_row('ab')], "line 1: 'choices' is no list of two or more texts"),
    ([make_row(['a', 1])], "line 1: 'choices' is no list of two or more texts"),
    ([{'context': 'a', 'question': 'b'}], "neither a column 'choices' with li"),
    ([make_row(['a', 'b'], question=None)], "line 1: 'question' is missing"),
  ],
)
def test_malformed_rows_are_refused(tmp_path, rows, words):
  with pytest.raises(errors.UserError, match=words):
    read(tmp_path, rows)


def test_a_numbered_column_that_is_missing_is_refused(tmp_path):
  path = tmp_path / 'swag.csv'
  path.write_text('sent1,ending0,ending2\na,b,c\n')
  with pytest.raises(errors.UserError, match='nor ending0 and ending1'):
    choice_data.read_file(str(path), ('sent1', '', 'ending'))


def make(tmp_path, dev=(), **changes):
  c = config_lib.finetuning()
  c.task = 'choice'
  c.data.input = str(tmp_path)
  c.data.update(text='context', pair='question', choices='choices')
  c.data.label = 'label'
  c.update_from_flattened_dict(changes)
  train = [make_row(['cat', 'the dogs', 'e'], 2), make_row(['e', 'e', 'cats'])]
  for name, rows in {'train': train, 'dev': dev or train[:1]}.items():
    text = '\n'.join(json.dumps(row) for row in rows)
    (tmp_path / f'{name}.jsonl').write_text(text)
  choice_data.FORMAT.forget()
  return c, choice_data.make(c, models.TOKENIZER)


def test_each_choice_is_a_pair_with_its_row(tmp_path):
  _, data = make(tmp_path)
  train = data.splits['train']
  assert (train.size, train.choices, len(train.encoded.ends)) == (2, 3, 6)
  assert train.labels.tolist() == [2, 0]
  expected = made.encode_rows(
    ['the cat'] * 3, ['e cat', 'e the dogs', 'e e'], 128
  )
  np.testing.assert_array_equal(
    train.encoded.ids[: train.encoded.ends[2]], expected.ids
  )
  assert data.labels == () and data.manifest['choices'] == 3
  assert choice_data.describe(data.manifest)[0].startswith(
    'train: 2 rows of 3 choices, longest 9 tokens ('
  )


def test_truncated_choices_are_counted(tmp_path):
  _, data = make(tmp_path, **{'phases.seq_length': (8,)})
  # the cat, e the dog ##s: 2 + 4 tokens and 3 special ones.
  assert ', 1 choices truncated (' in choice_data.describe(data.manifest)[0]


def test_rows_without_text_are_kept_and_said(tmp_path):
  empty = {**make_row(['', ' ', ''], question=''), 'context': ' '}
  _, data = make(tmp_path, [make_row(['', 'a', '']), empty, empty])
  assert data.splits['dev'].size == 3
  said = choice_data.describe(data.manifest)[-1]
  assert said.startswith('WARNING: 2 rows of ')
  assert said.endswith('without text, kept; the first in line 2')


def test_what_is_written_is_read(tmp_path):
  c, data = make(tmp_path)
  folder = str(tmp_path / 'data')
  task_data.write(choice_data.FORMAT, c, folder, models.TOKENIZER)
  found = task_data.read(choice_data.FORMAT, folder)
  for name, split in data.splits.items():
    for a, b in zip(split.encoded, found.splits[name].encoded, strict=True):
      np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(split.labels, found.splits[name].labels)
    assert found.splits[name].choices == 3


@pytest.mark.parametrize('label', [3, 'b', -1, 1.5])
def test_a_label_that_is_no_choice_is_refused(tmp_path, label):
  with pytest.raises(
    errors.UserError, match='no number of a choice, from 0 to'
  ):
    make(tmp_path, [make_row(['a', 'b', 'c'], label)])


def test_splits_with_other_numbers_of_choices_are_refused(tmp_path):
  with pytest.raises(errors.UserError, match='train has 3, dev has 2; fill'):
    make(tmp_path, [make_row(['a', 'b'])])
