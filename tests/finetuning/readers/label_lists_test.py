"""Tests of reading texts with several labels, in the layouts that people have."""

import json

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import (
  examples,
  label_lists,
  splits,
  table_files,
)


def read(tmp_path, name, content, label='l', needs_label=True):
  path = tmp_path / name
  path.write_text(content)
  columns = splits.Columns('text', label=label)
  table = table_files.read(str(path))
  return label_lists.read(table, columns, needs_label, examples.FIELDS)


def list_found(*given):
  return [x.label for x in read(*given).units]


def write_json(*values):
  return ''.join(json.dumps({'text': 'x', 'l': x}) + '\n' for x in values)


@pytest.mark.parametrize(
  'name, content, expected',
  [
    ('a.jsonl', write_json(['b', 'a', 'b'], [], None),
     [('b', 'a'), (), '']),
    ('a.jsonl', write_json(['', ' a'], float('nan'), 'NA'), [('a',), '', '']),
    ('a.jsonl', write_json([2, 17], [2.0], 3), [('2', '17'), ('2',), ('3',)]),
    # For each label whether it is true: a list of 0 and 1 that repeats one.
    ('a.jsonl', write_json([0, 1, 1], [0, 0, 0]), [('1', '2'), ()]),
    ('a.jsonl', write_json([True, False], [True, True]),
     [('0',), ('0', '1')]),
    ('a.jsonl', write_json([0, 1], [1]), [('0', '1'), ('1',)]),
    # GoEmotions.
    ('a.tsv', 'text\tl\nx\t2,17\nx\t3\nx\t\n', [('2', '17'), ('3',), '']),
    ('a.csv', 'text,l\nx,a | b|\nx,c d\n', [('a', 'b'), ('c d',)]),
    # As pandas writes lists.
    ('a.csv', 'text,l\nx,"[\'a,b\', \'c\']"\nx,[]\nx,\n',
     [('a,b', 'c'), (), '']),
  ],
)  # fmt: skip
def test_a_column_of_lists(tmp_path, name, content, expected):
  assert list_found(tmp_path, name, content) == expected


def test_a_column_of_0_and_1_for_each_label(tmp_path):
  # Jigsaw's: -1 in rows that its test does not score.
  text = 'text,mild,bad\nx,1,1\nx,0,0\nx,-1,-1\nx,0.0,1.0\n'
  expected = [('mild', 'bad'), (), '', ('bad',)]
  assert list_found(tmp_path, 'a.csv', text, 'mild,bad') == expected


@pytest.mark.parametrize(
  'name, content, label, message',
  [
    ('a.tsv', 'text\tl\nx\ta,b\nx\tc|d\n', 'l', "',' and '|' in 'l'; separate"),
    ('a.csv', 'text,l\nx,[0 1]\n', 'l', r"line 2 has the labels '\[0 1\]'"),
    ('a.jsonl', write_json(['a'], [{'a': 1}]), 'l', r"line 2 has the labels \[{'a'"),
    ('a.csv', 'text,l\nx,"{\'a\', \'b\'}"\n', 'l', "line 2 has the labels"),
    ('a.jsonl', write_json([['a']]), 'l', 'not a list of names'),
    ('a.csv', 'text,a,b\nx,1,0\nx,0,2\n', 'a,b', "line 3 has in 'b' '2', not 0"),
    ('a.csv', 'text,a,b\nx,1,-1\n', 'a,b', "line 2 has in 'b' '-1', not 0"),
    ('a.csv', 'text,a,b\nx,1,0\n', 'a,c', "has no column 'c'; it has text, a"),
  ],
)  # fmt: skip
def test_what_is_no_list_is_refused(tmp_path, name, content, label, message):
  with pytest.raises(errors.UserError, match=message):
    read(tmp_path, name, content, label)


def test_a_file_to_predict_for_needs_no_labels(tmp_path):
  for label in ('', 'a,b'):
    [x] = read(tmp_path, 'a.csv', 'text\nx\n', label, False).units
    assert x.label == ''


def test_every_label_keeps_a_row_that_is_not_held_out(tmp_path):
  # Two neighbouring rows have each label, and all have two; others have one.
  lists = [[f'x{i // 2}', f'y{(i + 1) // 2}'] for i in range(300)]
  lists += [['z']] * 600
  rows = read(tmp_path, 'a.jsonl', write_json(*lists))
  out = splits.hold_out('', 0.6, range(900), rows.list_labels(None))
  kept = [x for x, held in zip(lists, out, strict=True) if not held]
  assert out.sum() == 540
  assert {y for x in kept for y in x} == {y for x in lists for y in x}
