"""Tests of the schemes of tags."""

import pytest

from bert_jax.finetuning.readers import schemes


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
  forms = schemes.parse(set(tags.split()))
  found = [forms[tag] for tag in tags.split()]
  assert schemes.to_bio(found) == expected.split()


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
  assert schemes.parse(set(tags.split())) is None


def test_an_odd_tag_among_those_of_a_scheme_is_left_out():
  assert schemes.parse({'O', 'B-PER', 'PER'}) == {'O': 'O', 'B-PER': 'B-PER'}
