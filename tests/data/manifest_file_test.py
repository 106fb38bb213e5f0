import json
import re

import pytest

from bert_jax import errors
from bert_jax.data import manifest_file

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
  'unknown_share': 0.0,
  'unknown_characters': 0.0,
  'documents': {'train': 9},
  'sentences': 90,
  'lengths': {
    '128': {'random_share': 0.5, 'unused_tokens': 9, 'unused_share': 0.009}
  },
}


@pytest.mark.parametrize(
  'language, words, warns',
  [
    ('en', ['[PAD]', '한국', '중국', 'a', '中国人'], True),
    ('ko', ['[PAD]', '한국', '중국', 'a', '中国人'], False),
    ('en', ['[PAD]', 'мы', 'é'], False),  # 2 of 6
  ],
)
def test_text_in_another_script_than_english_is_noticed(language, words, warns):
  manifest = {**_ORDINARY}
  manifest['recipe'] = _ORDINARY['recipe'] | {'language': language}
  found = manifest_file.list_warnings(manifest, words)
  assert ['data.language=ko' in x for x in found] == [True] * warns


def test_files_of_an_input_are_counted_by_kind():
  names = 'a.jsonl', 'b.jsonl.gz', 'wiki_00', 'c.txt', 'd.json'
  inputs = [
    {'input': 'one', 'files': [{'path': 'x.txt'}]},
    {'input': 'mine', 'files': [{'path': f'mine/{x}'} for x in names]},
  ]
  for x in inputs:
    x |= dict.fromkeys(('train', 'heldout'), {'tokens': 1, 'parts': 1})
    x['documents'] = 1
  more = {'inputs': inputs, 'tokens': 1, 'accents': 'kept', 'lengths': {}}
  more['documents'] = {'train': 2, 'heldout': 2}
  lines = manifest_file.describe(_ORDINARY | more)
  assert lines[0] == 'files read: mine: 2 JSONL, 2 text, 1 JSON'


@pytest.mark.parametrize('text', [None, '{', '[]'])
def test_a_folder_without_a_readable_manifest_is_no_data(tmp_path, text):
  if text is not None:
    (tmp_path / 'manifest.json').write_text(text)
  with pytest.raises(errors.UserError, match='is not prepared data'):
    manifest_file.read(str(tmp_path))


def test_a_changed_manifest_is_refused(tmp_path):
  made = {
    'format': manifest_file.FORMAT,
    'recipe': {'seed': 3},
    'lengths': {'32': {}},
    'shards': (),
  }
  manifest_file.write(str(tmp_path), made)
  as_read = {**made, 'shards': []}
  assert manifest_file.read(str(tmp_path)) == as_read
  path = tmp_path / 'manifest.json'
  whole = path.read_text()
  for change in (('"seed": 3', '"seed": 2'), ('"shards"', '"shares"')):
    path.write_text(whole.replace(*change))
    with pytest.raises(errors.UserError, match='not as it was written'):
      manifest_file.read(str(tmp_path))
  for odd in (made, {**made, 'shards': 'x'}):
    path.write_text(json.dumps(odd))
    with pytest.raises(errors.UserError, match='checksum is missing'):
      manifest_file.read(str(tmp_path))


def test_data_of_another_format_say_to_prepare_again(tmp_path):
  directory = str(tmp_path)
  manifest_file.write(directory, {'recipe': {'seed': 3}, 'lengths': {}})
  with pytest.raises(
    errors.UserError, match=f'^{directory} was .* another version .* delete it'
  ):
    manifest_file.read(directory)
  assert manifest_file.read(directory, 'recipe')['recipe'] == {'seed': 3}


def test_text_in_no_row_is_warned_of():
  assert not manifest_file.list_warnings(_ORDINARY, ['a'])
  rows = {
    '128': {'unused_tokens': 20, 'unused_share': 0.02, 'random_share': 0.5}
  }
  for passes in (1, 5):
    recipe = {**_ORDINARY['recipe'], 'passes': passes}
    manifest = {**_ORDINARY, 'lengths': rows, 'recipe': recipe}
    assert manifest_file.list_warnings(manifest, ['a']) == [
      'WARNING: 20 tokens (2.0%) are in no row of 128 tokens: pairs are truncated '
      'to fit, and weights may leave documents out; more passes (data.passes) use '
      'more'
    ]


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
  found = manifest_file.warn_of_case(words, lowercase)
  assert bool(found) == bool(said) and re.search(said, ''.join(found))
  recipe = _ORDINARY['recipe'] | {'vocab': 'v.txt', 'lowercase': lowercase}
  manifest = {**_ORDINARY, 'recipe': recipe}
  assert manifest_file.list_warnings(manifest, words) == found


def test_the_file_with_most_of_what_is_not_utf8_is_named():
  files = [{'path': 'a', 'invalid_utf8': 1}, {'path': 'b c', 'invalid_utf8': 4}]
  inputs = [{'files': [*files, {'path': 'd'}]}]
  [said] = manifest_file.warn_of_invalid({'invalid_utf8': 5}, inputs)
  assert said.startswith('WARNING: 5 sequences of bytes, most of them in b c, ')
  assert said.endswith('such as CP1252, CP949, SHIFT_JIS or UTF-16LE')
  assert "iconv -f ENCODING -t UTF-8 'b c', where" in said
