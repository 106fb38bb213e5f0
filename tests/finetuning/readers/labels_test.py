"""Tests of what labels and tags are: values of files as users have them."""

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


@pytest.mark.parametrize(
  'tags, expected',
  [
    # IOB1: B- only between two entities of a kind.
    ('I-PER I-PER B-PER O I-LOC', 'B-PER I-PER B-PER O B-LOC'),
    ('B-PER I-PER O B-LOC', 'B-PER I-PER O B-LOC'),  # BIO
    # IOE1: E- only between two entities of a kind; IOE2: at each end.
    ('I-PER E-PER I-PER O I-LOC', 'B-PER I-PER B-PER O B-LOC'),
    ('E-PER E-PER I-PER E-PER', 'B-PER B-PER B-PER I-PER'),
    ('B-PER E-PER S-LOC S-LOC O', 'B-PER I-PER B-LOC B-LOC O'),  # BIOES
    ('B-PER I-PER L-PER U-LOC', 'B-PER I-PER I-PER B-LOC'),  # BILOU
    ('B-PER M-PER E-PER O S-PER', 'B-PER I-PER I-PER O B-PER'),  # BMES
    ('B-PER M-PER E-PER W-PER', 'B-PER I-PER I-PER B-PER'),  # BMEWO
    ('I-PER I-LOC', 'B-PER B-LOC'),
    ('B I O I', 'B I O B'),  # a single kind, without its name
    ('B M E S B E', 'B I I B B I'),
    ('PER PER O LOC', 'B-PER I-PER O B-LOC'),
    ('PER-B PER-I O', 'B-PER I-PER O'),
    ('PER_B PER_I -', 'B-PER I-PER O'),
    ('B_PER I_PER O', 'B-PER I-PER O'),
    ('B-creative-work I-creative-work', 'B-creative-work I-creative-work'),
    ('O O', 'O O'),
  ],
)
def test_every_scheme_becomes_bio(tags, expected):
  forms = labels.parse_scheme(set(tags.split()))
  found = [forms[tag] for tag in tags.split()]
  assert labels.to_bio(found) == expected.split()


@pytest.mark.parametrize(
  'tags',
  [
    'NOUN VERB PUNCT',
    'NOUN VERB -',
    'N O V ,',  # of tweets
    'NN -LRB- NNP|SG B',
    'NNG+JX I SL',
  ],
)
def test_parts_of_speech_have_no_scheme(tags):
  assert labels.parse_scheme(set(tags.split())) is None


def test_an_odd_tag_among_those_of_a_scheme_is_left_out():
  assert labels.parse_scheme({'O', 'B-PER', 'PER'}) == {
    'O': 'O',
    'B-PER': 'B-PER',
  }
