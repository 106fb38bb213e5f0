"""Tests of what is said about prepared data."""

import re

import pytest

from bert_jax.data import summary

_ORDINARY = {
  'recipe': {
    'layout': 'files',
    'language': 'en',
    'vocab': '',
    'lowercase': True,
    'passes': 5,
  },
  'inputs': [],
  'cleaned': {},
  'doubts': {},
  'unknown_share': 0.0,
  'unknown_characters': 0.0,
  'documents': {'train': 100},
  'sentences': 500,
  'lengths': {
    '32': {'random_share': 0.5, 'unused_tokens': 9, 'unused_share': 0.009}
  },
}


def warn(words=('a',), recipe=(), **changes):
  recipe = _ORDINARY['recipe'] | dict(recipe)
  return summary.list_warnings(_ORDINARY | {'recipe': recipe} | changes, words)


def test_text_in_another_script_than_english_is_noticed():
  words = ['[PAD]', '한국', '중국', 'a', '中国人']
  [said] = warn(words)
  assert 'data.language=ko' in said
  assert not warn(words, {'language': 'ko'})
  assert not warn(['[PAD]', 'мы', 'é'])  # 2 of 6


def test_an_input_without_text_and_too_little_general_text_are_noticed():
  def warn_of(tokens, **recipe):
    inputs = [
      {'input': name, 'weight': weight, 'train': {'tokens': n}}
      for name, weight, n in (('own', 1.0, 900), ('other', 2.0, tokens))
    ]
    return warn(inputs=inputs, recipe=recipe)

  [said] = warn_of(0)
  assert said.startswith('WARNING: nothing of other is trained on: it has no t')
  assert len(warn_of(0, general_share=0.1)) == 1
  assert not warn_of(1) and not warn_of(50, general_share=0.1)
  [said] = warn_of(20, general_share=0.1)
  assert 'other is 4.26% of the text, not 10% as data.general_share' in said


def test_text_in_no_row_is_warned_of():
  row = {'unused_tokens': 20, 'unused_share': 0.02, 'random_share': 0.5}
  assert warn(lengths={'128': row}) == [
    'WARNING: 20 tokens (2.0%) are in no row of 128 tokens: pairs are truncated '
    'to fit, and weights may leave documents out; more passes (data.passes) use '
    'more'
  ]


def test_rows_of_sentences_are_counted_and_warned_of_without_pairs():
  row = {'rows': 900, 'parts': 1234, 'padding_share': 0.021}
  row |= {'unused_tokens': 20, 'unused_share': 0.02}
  recipe = {'rows': 'full_sentences', 'layout': 'lines'}
  said = warn(lengths={'128': row}, recipe=recipe, sentences=120)
  assert said == [
    'WARNING: documents have 1.2 sentences on average: if they are longer than a '
    'line, put blank lines between documents, with data.layout=paragraphs; if they '
    'are so short, each is alone in its part of a row',
    'WARNING: 20 tokens (2.0%) are in no row of 128 tokens: weights may leave '
    'documents out; more passes (data.passes) use more',
  ]
  more = {'recipe': recipe, 'lengths': {'128': row}, 'tokens': 1000}
  more |= {'accents': 'kept', 'documents': {'train': 4, 'heldout': 1}}
  files = [{'path': f'mine/{x}'} for x in ('a.jsonl.gz', 'wiki_00', 'c.txt')]
  more['inputs'] = [{'input': 'mine', 'files': files, 'documents': 5}]
  more['inputs'][0] |= dict.fromkeys(('train', 'heldout'), {'tokens': 1})
  _, of_input, _, of_rows = summary.describe(_ORDINARY | more)
  assert of_input.startswith('mine: 2 text, 1 JSONL, 5 documents, 1 tokens to ')
  assert of_rows == (
    'length 128: 1,234 parts in 900 rows, 2.1% padding, 2.00% of the tokens in no '
    'row'
  )


@pytest.mark.parametrize(
  'words, lowercase, said',
  [
    (
      ['[UNK]', 'a', '##b'],
      False,
      '0% of the .* the text has some: give .*True',
    ),
    (['[UNK]', 'a', '##b'], True, ''),
    (['[UNK]', 'A', '##b'], True, '33% of .* so those never occur: .*=False'),
  ],
)
def test_a_vocabulary_of_the_other_case_is_noticed(words, lowercase, said):
  found = summary.warn_of_case(words, lowercase)
  assert bool(found) == bool(said) and re.search(said, ''.join(found))
  assert warn(words, {'vocab': 'v.txt', 'lowercase': lowercase}) == found


def test_the_file_with_most_of_what_is_not_utf8_is_named():
  files = [{'path': 'a', 'invalid_utf8': 1}, {'path': 'b c', 'invalid_utf8': 4}]
  inputs = [{'files': [*files, {'path': 'd'}]}]
  [said] = summary.warn_of_invalid({'invalid_utf8': 5}, inputs)
  assert said.startswith('WARNING: 5 sequences of bytes, most of them in b c, ')
  assert said.endswith('such as CP1252, CP949, SHIFT_JIS or UTF-16LE')
  assert "iconv -f ENCODING -t UTF-8 'b c', where" in said


@pytest.mark.parametrize(
  'layout, changes, words',
  [
    ('paragraphs', {'sentences': 299}, ['3.0 sentences', 'data.layout=files']),
    ('paragraphs', {'random': 0.81}, ['81% of the pairs', 'blank lines']),
    ('lines', {'random': 1}, ['layout=paragraphs', 'nsp=False']),
    ('files', {'random': 1}, ['random: if they are so short, train']),
    ('files', {'doubts': {'hard_wrapped': 2}}, ['2 files', 'layout=files']),
    ('files', {'doubts': {'unbroken': 1}}, ['1 file of', 'layout=lines']),
    ('files', {'doubts': {'finely_broken': 1}}, []),
    ('files', {'doubts': {'finely_broken': 2}}, ['2 files', 'layout=files']),
    ('files', {'documents': {'train': 99}, 'sentences': 99}, []),
  ],
)
def test_a_doubtful_layout_is_said_with_one_that_may_fit(
  layout, changes, words
):
  row = {'random_share': changes.pop('random', 0.5), 'unused_share': 0}
  said = warn(recipe={'layout': layout}, lengths={'32': row}, **changes)
  assert len(said) == bool(words)
  assert all(word in line for line in said for word in words)
