"""Tests of what a label is: values of files as users have them."""

import json

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import labels


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
  assert {labels.read('x', 1, value) for value in values} == {label}


@pytest.mark.parametrize(
  'value', [['a', 'b'], [], '["a"]', "['a', 'b']", {'a': 1}]
)
def test_a_list_is_no_label(value):
  with pytest.raises(
    errors.UserError, match='x: line 3 has .*multi_label=True'
  ):
    labels.read('x', 3, value)


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
  assert labels.find_mark(given) == mark
