"""Tests of reading labelled texts, and of what is said about bad ones."""

import json

import pytest

from bert_jax import errors
from bert_jax.finetuning import classes, training
from bert_jax.finetuning.readers import (
  examples,
  splits,
  table_files,
)
from tests.finetuning import made


def source(given, **changes):
  known = splits.get_source(made.make_config('', str(given)))
  columns = {
    x: changes.pop(x) for x in ('text', 'pair', 'label') if x in changes
  }
  known = known._replace(columns=known.columns._replace(**columns))
  return known._replace(**{'heldout': 0.5, **changes})


def read_splits(given):
  return training.read_contents(classes.CLASSES, given)


def list_labels(rows):
  return [x.label for x in rows.units]


def read(tmp_path, content, name='train.csv', **changes):
  """Reads a training file; the dev file has one row with the label a."""
  (tmp_path / name).write_bytes(content.encode())
  (tmp_path / 'dev.csv').write_text('text,label,other\nfine,a,x\n')
  return read_splits(source(tmp_path, **changes))


def test_rows_of_snli_without_agreement_are_left_out(tmp_path):
  content = 'gold_label\tsentence1\nneutral\ta\n-\tb\nentailment\tc\n'
  for name in ('train', 'dev', 'test'):
    (tmp_path / f'snli_1.0_{name}.txt').write_text(content)
  given = source(tmp_path, text='sentence1', label='gold_label')
  for rows in read_splits(given).values():
    assert (rows.texts, list(rows.marked)) == (['a', 'c'], [3])
    assert [x.id for x in rows.units] == ['0', '2']


def test_a_test_file_whose_labels_are_all_minus_1_has_none(tmp_path):
  (tmp_path / 'test.csv').write_text('text,label\nt,-1\nu,-1\n')
  test = read(tmp_path, 'text,label\nt,0\nu,1\n')['test']
  assert list_labels(test) == ['', '']


def test_a_text_may_be_put_together_of_columns_and_of_inner_fields(tmp_path):
  rows = [
    {'text': 'a', 'x': {'word': f'b{i}', 'at': [i]}, 'label': 'l'}
    for i in range(3)
  ]
  rows[2]['x']['word'] = None
  dev = tmp_path / 'dev.json'
  dev.write_text(json.dumps(rows, indent=2))
  given = source(f'train={dev},dev={dev}', text='text + x.word', pair='x.word')
  train = read_splits(given)['train']
  assert train.texts == ['a b0', 'a b1', 'a ']
  assert train.pairs == ['b0', 'b1', '']
  assert [x.line for x in train.units] == [1, 2, 3]
  with pytest.raises(errors.UserError, match="no column 'y'; it has text, x.w"):
    read_splits(given._replace(columns=splits.Columns('text + y')))


def test_null_is_a_text_without_words(tmp_path):
  content = '{"text": null, "label": "x"}\n'
  train = read(tmp_path, content, 'train.jsonl')['train']
  assert train.texts == [''] and train.list_empty() == [1]


@pytest.mark.parametrize('copies', [1, 2, 50])
def test_no_copy_of_a_training_row_is_held_out(tmp_path, copies):
  rows = [f'text {i},{"ab"[i % 2]}\n' for i in range(100)]
  rows += [f'often,{"ab"[i % 2]}\n' for i in range(copies)]
  given = tmp_path / 'train.csv'
  given.write_text('text,label\n' + ''.join(rows))
  found = read_splits(source(f'train={given}', heldout=0.2))
  train, dev = ([x.text for x in found[s].units] for s in ('train', 'dev'))
  assert not set(train) & set(dev) and len(train + dev) == 100 + copies
  assert 10 <= len(dev) <= 30  # a fifth of the texts that occur once


@pytest.mark.parametrize(
  'content, name, message',
  [
    ('text,klass\nt,a\n', 'csv', "no column 'label'; it has text, klass; name"),
    ('words,label\nt,a\n', 'csv', "no column 'text'; .* by data.text="),
    (
      'id;text;label\n1;t;a\n',
      'csv',
      'it has id;text;label; .* its separator .*the com',
    ),
    ('t,l\n1,2\n', 'tsv', 'it has t,l; .* the tab of others'),
    (
      't;l\n"1";"2"\n',
      'csv',
      'is not CSV at line 2.* the separator is the comma',
    ),
    ('text,label\nt,a\nu\n', 'csv', 'line 3 has 1 column, not 2'),
    ('text\tlabel\nt\ta\tb\n', 'tsv', 'line 2 has 3 columns, not 2'),
    (
      'text;label\nt, u;a\n',
      'csv',
      r'2 columns, not 1 .*; commas sep.* of .csv',
    ),
    ('text,label\nt,a\nu,NA\n', 'csv', 'line 3; .* NA, None, nan, - and their'),
    (
      '{"text": "t", "label": [1]}\n',
      'jsonl',
      r"line 1 has the label '\[1\]'",
    ),
    (
      '{"text": "t", "label": {"a": 1}}',
      'json',
      "'label'; it has text, label.a;",
    ),
    ('[{"text": "t", "label": 1}, 2]', 'json', 'line 2 holds a int; give one'),
    ('', 'tsv', 'has no rows'),
    ('{"text": "t"\n', 'jsonl', 'line 1 is not JSON'),
    ('{"text": 3, "label": 1}\n', 'jsonl', "line 1 has in 'text' a int, not"),
    (
      '{"text": "t", "label": 1}\n{"label": 2}\n',
      *('jsonl', "line 2 has in 'text' nothing, not"),
    ),
  ],
)
def test_a_malformed_file_is_refused_in_one_line(
  tmp_path, content, name, message
):
  with pytest.raises(errors.UserError, match=message) as caught:
    read(tmp_path, content, f'train.{name}')
  assert '\n' not in str(caught.value) and f'train.{name}' in str(caught.value)


def test_classes_that_are_numbers_are_sorted_by_value(tmp_path):
  splits = read(tmp_path, 'text,label\nt,10\nu,9\nv,9\n')
  labels = examples.list_classes(splits['train'])
  assert labels == ('9', '10')
  numbers = examples.number_labels(splits['train'], labels)
  assert numbers.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
  'split, rows, labels, message',
  [
    ('dev', 't,b\nu,c', ('b', 'c'), 'line 2 has the label .a., which'),
    ('train', 't,1.5\nu,inf', (), "line 3 has the label 'inf'"),
    # It would break a row of the predictions.
    ('train', 't,a\nu,"b\nc"', None, r"line 3 has the label 'b\\nc'; give one"),
  ],
)
def test_a_label_that_cannot_be_numbered_is_refused(
  tmp_path, split, rows, labels, message
):
  found = read(tmp_path, f'text,label\n{rows}\n')[split]
  with pytest.raises(errors.UserError, match=message):
    if labels is None:
      examples.list_classes(found)
    examples.number_labels(found, labels)


def test_without_a_dev_file_the_same_rows_are_held_out_in_any_order(tmp_path):
  lines = ''.join(f't{i},a\n' for i in range(40))
  (tmp_path / 'train.csv').write_text('text,label\n' + lines)
  found = read_splits(source(tmp_path, heldout=0.25))
  train, dev = found['train'], found['dev']
  assert sorted(train.texts + dev.texts) == sorted(f't{i}' for i in range(40))
  assert len(dev.texts) == 10
  assert [f't{x.id}' for x in dev.units] == dev.texts
  with pytest.raises(errors.UserError, match='data.heldout=0.0 holds out 0'):
    read_splits(source(tmp_path, heldout=0.0))


def write_glue(root, folder, *contents):
  """Writes train.tsv, dev.tsv and maybe test.tsv."""
  (root / folder).mkdir()
  for name, content in zip(('train', 'dev', 'test'), contents, strict=False):
    (root / folder / f'{name}.tsv').write_text(content, encoding='utf-8')


def test_cola_has_a_header_in_its_test_file_only(tmp_path):
  train = 'gj04\t1\t\tA dog.\ngj04\t0\t*\t"Dog a\n'
  test = 'index\tsentence\n0\tA cow.\n'
  write_glue(tmp_path, 'CoLA', train, 'gj04\t1\t\tA cat.\n', test)
  found = read_splits(source(tmp_path, glue='cola'))
  assert found['train'].texts == ['A dog.', '"Dog a']
  assert list_labels(found['train']) == ['1', '0']
  assert found['test'].texts == ['A cow.'] and list_labels(found['test']) == [
    ''
  ]


def test_short_lines_of_glue_are_left_out_and_counted(tmp_path):
  header = 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
  train = '1\t2\t3\ta\tb\t1\n4\t5\t6\tbroken\n'
  write_glue(tmp_path, 'QQP', header + train, header + '7\t8\t9\tc\td\t0\n')
  train = read_splits(source(tmp_path, glue='qqp'))['train']
  assert (train.texts, train.pairs, train.ragged) == (['a'], ['b'], [3])


@pytest.mark.parametrize(
  'label, values',
  [
    ('1', [1, 1.0, '1', '1.0', ' 1.00 ']),
    ('-3', [-3, '-3.0']),
    ('0.5', [0.5, '0.5']),
    ('true', [True, 'true', 'True', 'TRUE']),
    ('정치', ['정치', '\u110c\u1165\u11bc\u110e\u1175']),  # in two normal forms
    # Missing, as JSON, pandas, R, spreadsheets and databases write it.
    ('', [None, '', ' ', float('nan'), *json.loads('[NaN, null]')]),
    ('', ['nan', 'NaN', 'null', 'None', 'NA', 'N/A', '<NA>', '#N/A', r'\N']),
    ('', ['Null', 'NAN', 'NaT']),
    ('none', ['none']),  # a class of its own, as in stance detection
    ('Nan', ['Nan']),
    ('1.0.0', ['1.0.0']),
    ('[CLS', ['[CLS']),
  ],
)
def test_values_that_are_equal_are_one_label(label, values):
  assert {examples.read_label('x', 1, value) for value in values} == {label}


@pytest.mark.parametrize(
  'value', [['a', 'b'], [], '["a"]', "['a', 'b']", {'a': 1}]
)
def test_a_list_is_no_label(value):
  with pytest.raises(
    errors.UserError, match='x: line 3 has .*multi_label=True'
  ):
    examples.read_label('x', 3, value)


@pytest.mark.parametrize(
  'given, mark',
  [
    (['entailment', 'neutral', '-'], '-'),
    (['+', '-'], None),
    (['-'], '-'),
    (['-1', '0', '1', '2'], '-1'),  # SNLI on Hugging Face's hub
    (['-1'], '-1'),  # GLUE's test sets there
    (['-1', '0', '1'], None),  # negative, neutral, positive
    (['-1', '1'], None),
    (['-2', '-1', '0', '1', '2'], None),
    (['a', 'b'], None),
  ],
)
def test_what_says_that_a_row_has_no_label(given, mark):
  assert examples.find_mark(given) == mark


def read_lists(tmp_path, name, content, label='l', labelled=True):
  path = tmp_path / name
  path.write_text(content)
  columns = splits.Columns('text', label=label)
  table = table_files.read(str(path))
  return examples.read_lists(table, columns, labelled, splits.FIELDS)


def list_sets(*given):
  return [x.label for x in read_lists(*given, labelled=None).units]


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
  assert list_sets(tmp_path, name, content) == expected


def test_a_column_of_0_and_1_for_each_label(tmp_path):
  # Jigsaw's: -1 in rows that its test does not score.
  text = 'text,mild,bad\nx,1,1\nx,0,0\nx,-1,-1\nx,0.0,1.0\n'
  expected = [('mild', 'bad'), (), '', ('bad',)]
  assert list_sets(tmp_path, 'a.csv', text, 'mild,bad') == expected


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
    read_lists(tmp_path, name, content, label)


def test_a_file_to_predict_for_needs_no_labels(tmp_path):
  for label in ('', 'a,b'):
    [x] = read_lists(tmp_path, 'a.csv', 'text\nx\n', label, False).units
    assert x.label == ''


def test_every_label_keeps_a_row_that_is_not_held_out(tmp_path):
  # Two neighbouring rows have each label, and all have two; others have one.
  lists = [[f'x{i // 2}', f'y{(i + 1) // 2}'] for i in range(300)]
  lists += [['z']] * 600
  rows = read_lists(tmp_path, 'a.jsonl', write_json(*lists))
  out = splits.hold_out('', 0.6, range(900), rows.list_labels(None))
  kept = [x for x, held in zip(lists, out, strict=True) if not held]
  assert out.sum() == 540
  assert {y for x in kept for y in x} == {y for x in lists for y in x}


def test_a_missing_file_and_an_unknown_extension_are_refused(tmp_path):
  with pytest.raises(errors.UserError, match='cannot read .*x.csv'):
    table_files.read(str(tmp_path / 'x.csv'))
  with pytest.raises(errors.UserError, match='does not end in .tsv, .csv'):
    table_files.read('x.parquet')
