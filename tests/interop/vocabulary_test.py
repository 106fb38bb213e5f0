"""Whose tokenizer a folder has, which words it adds, and what is refused."""

import json
import pathlib

import pytest
import tokenizers

from bert_jax import errors
from bert_jax.interop import hugging_face, vocabulary
from bert_jax.model import bert_config
from bert_jax.tokenization.tokenizer import AddedWord, Tokenizer
from tests import bpe, models

VOCAB = (
  '[PAD] [UNK] [CLS] [SEP] [MASK] [unused1] the cat caf ##é ##s e ##a a b ##b '
  'A ##A . ! ? - \' " ( 한 ##국 東 か ##が'
).split()
CONFIG = 'tokenizer_config__json'
NORMALIZER = models.NORMALIZER | {'lowercase': False, 'strip_accents': False}


def make_fast(vocab=tuple(VOCAB), **changes):
  """Returns the tokenizer.json of a cased BERT, as an object."""
  pieces = {x: i for i, x in enumerate(vocab)}
  fast = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(pieces, unk_token='[UNK]')
  )
  fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  fast.post_processor = tokenizers.processors.BertProcessing(
    ('[SEP]', 3), ('[CLS]', 2)
  )
  found = json.loads(fast.to_str()) | {'normalizer': NORMALIZER}
  model = found['model'] | changes.pop('model', {})
  return found | {'model': model} | changes


def read(folder, size=30, vocab=VOCAB, **written):
  """Writes files of a folder and reads it; __ is the dot before json."""
  if vocab:
    (folder / 'vocab.txt').write_text('\n'.join([*vocab, '']), 'utf-8')
  for name, value in written.items():
    (folder / name.replace('__', '.')).write_text(json.dumps(value), 'utf-8')
  sizes = {'hidden_size': 8, 'num_layers': 1, 'num_heads': 2, 'mlp_size': 8}
  config = bert_config.BertConfig(vocab_size=size, max_positions=8, **sizes)
  return vocabulary.read(str(folder), config)


ADDED = [
  {'id': 5, 'content': '[unused1]', 'special': True, 'normalized': False},
  {'id': 30, 'content': 'new', 'special': False, 'normalized': True},
  {'id': 31, 'content': '[E1]', 'special': True, 'normalized': False},
]
FLAGS = {'single_word': False, 'lstrip': False, 'rstrip': False}
ADDED = [FLAGS | x for x in ADDED]
WORDS = (
  AddedWord('[unused1]', 5, True, False, False, True),
  AddedWord('new', 30, False, False, True, False),
  AddedWord('[E1]', 31, True, False, False, False),
)
TEXT = 'the [unused1] cat[E1]newcats'
TOKENS = 'the [unused1] cat [E1] new cat ##s'.split()


@pytest.mark.parametrize(
  'written',
  [
    {'tokenizer__json': make_fast(added_tokens=ADDED)},
    {
      'tokenizer_config__json': {
        'tokenizer_class': 'BertTokenizer',
        'do_lower_case': False,
        'added_tokens_decoder': {
          str(x['id']): {k: v for k, v in x.items() if k != 'id'} for x in ADDED
        },
      }
    },
    {
      'added_tokens__json': {'[E1]': 31, 'new': 30},
      'special_tokens_map__json': {
        'additional_special_tokens': [{'content': '[unused1]'}, '[E1]']
      },
    },
  ],
)
def test_added_words_are_read_wherever_they_are_written(tmp_path, written):
  tokenizer, left_out = read(tmp_path, 32, **written)
  assert tokenizer.added == WORDS and not left_out
  assert tokenizer.tokens(tokenizer.ids([TEXT])[0]) == TOKENS
  # Without embeddings, they are left out.
  tokenizer, left_out = read(tmp_path, 31)
  assert tokenizer.added == WORDS[:2]
  assert left_out == ['added without an embedding: [E1]']


def test_added_words_are_exported_for_transformers_and_read_back(tmp_path):
  words = (*models.VOCAB[:9], '[E1]', 'heparin')
  added = (
    AddedWord('[E1]', 9, True, False, False, True),
    AddedWord('heparin', 10, False, True, True, False),
  )
  ours = Tokenizer(words, added=added)
  text = 'the [E1]cat heparins HEPARIN [MASK]'
  path = tmp_path / 'hf'
  hugging_face.export(str(path), models.make_params(), models.CONFIG, ours)
  theirs = tokenizers.Tokenizer.from_file(str(path / 'tokenizer.json'))
  assert theirs.encode(text).ids == ours.encode(text)['input_ids']
  assert hugging_face.read(str(path)).tokenizer == ours


def test_empty_lines_and_equal_pieces_keep_their_places(tmp_path):
  words = [*models.VOCAB[:7], '', 'cat', '', '##s']
  (tmp_path / 'vocab.txt').write_text('\n'.join(words))
  ours = Tokenizer.load(str(tmp_path / 'vocab.txt'))
  path = str(tmp_path / 'hf')
  hugging_face.export(path, models.make_params(), models.CONFIG, ours)
  assert hugging_face.read(path).tokenizer == ours
  assert ours.ids(['cats']) == [[8, 10]]
  theirs = tokenizers.Tokenizer.from_file(f'{path}/tokenizer.json')
  assert theirs.encode('cats').ids == [2, 8, 10, 3]
  pathlib.Path(path, 'vocab.txt').unlink()  # as transformers 5 saves it
  assert hugging_face.read(path).tokenizer.ids(['cats']) == [[8, 10]]


@pytest.mark.parametrize(
  ('more', 'strips'), [('한국 ##국', False), ('cafe ##e', True)]
)
def test_accents_of_a_bare_vocabulary_are_guessed(tmp_path, more, strips):
  plain = [x for x in VOCAB[:9] if 'é' not in x]
  words = [*plain, *more.split()]
  tokenizer, _ = read(tmp_path, len(words), words)
  assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, strips)
  # transformers' own default, where a file says that text is lower-cased
  settings = {'do_lower_case': True}
  tokenizer, _ = read(tmp_path, len(words), words, **{CONFIG: settings})
  assert tokenizer.strip_accents


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {'vocab': None},
    {'truncation': {**dict.fromkeys(('max_length', 'stride'), 2)}},
    {'normalizer': None},
    {'post_processor': None},
    {'added_tokens': ADDED},
    {'model': {'max_input_chars_per_word': 200}},
    {CONFIG: {'tokenizer_class': 'ElectraTokenizerFast'}},
    {CONFIG: {'tokenizer_class': 'TokenizersBackend'}},
    {CONFIG: {'never_split': ['the', '[SEP]'], 'do_basic_tokenize': True}},
    {'config__json': {'auto_map': {'AutoModel': 'a.B'}}},
    {'config__json': {'tokenizer_class': 'BertTokenizer'}},
  ],
)
def test_what_is_berts_is_read(tmp_path, changes):
  files = {x: changes.pop(x) for x in [*changes] if '__' in x}
  vocab = changes.pop('vocab', VOCAB)
  if 'truncation' in changes:
    changes['truncation'] |= {'strategy': 'LongestFirst', 'direction': 'Right'}
  if changes.get('normalizer', 1) is None:  # which leaves ideographs together
    vocab = [x.replace('東', 'z') for x in VOCAB]
    changes |= {'model': {'vocab': {x: i for i, x in enumerate(vocab)}}}
  files['tokenizer__json'] = make_fast(**changes)
  tokenizer, _ = read(tmp_path, 32, vocab, **files)
  assert tokenizer.vocab[:30] == tuple(vocab or VOCAB)
  assert not tokenizer.lowercase


_OTHER = {'type': 'Whitespace'}
_FRAME = {'type': 'BertProcessing', 'cls': ['[CLS]', 2], 'sep': ['a', 12]}


@pytest.mark.parametrize(
  ('message', 'changes'),
  [
    ("tokenizer_class is 'BertJapanese", {CONFIG: 'BertJapaneseTokenizer'}),
    (
      "tokenizer_class is 'KoBert",
      {'config__json': {'tokenizer_class': 'KoBertTokenizer'}},
    ),
    ("'mecab', not 'basic'", {CONFIG: {'word_tokenizer_type': 'mecab'}}),
    (
      "never_split is .'the'",
      {CONFIG: {'never_split': ['the', '[SEP]']}, 'fast': False},
    ),
    ("cls_token is '<s>'", {CONFIG: {'cls_token': {'content': '<s>'}}}),
    ('auto_map', {CONFIG: {'auto_map': {'AutoTokenizer': ['a.B', None]}}}),
    (
      'Chinese characters together',
      {CONFIG: {'tokenize_chinese_chars': False}},
    ),
    ("pre_tokenizer .* 'Whitespace'", {'pre_tokenizer': _OTHER}),
    ("'@@', not '##'", {'model': {'continuing_subword_prefix': '@@'}}),
    (
      r"aaa\.\.\. \(100 letters\)' \[CLS\], \[UNK\]",
      {'model': {'max_input_chars_per_word': 50}},
    ),
    (
      r'makes of .* \[UNK\], ##a; here .* \[UNK\], \[SEP\]',
      {'post_processor': _FRAME},
    ),
    ("differ: 'dog' is 7 in the first and missing", {'vocab': ['cat', 'dog']}),
    ("'the' is added as 7", {'added_tokens__json': {'the': 7}, 'fast': False}),
    ('no piece begins with ##', {'vocab': ['##', ''], 'fast': False}),
    ("pieces such as '▁é'", {'vocab': ['##', '▁'], 'fast': False}),
  ],
)
def test_what_is_not_berts_is_refused_in_a_line(tmp_path, message, changes):
  files = {x: changes.pop(x) for x in [*changes] if '__' in x}
  if isinstance(files.get(CONFIG), str):
    files[CONFIG] = {'tokenizer_class': files[CONFIG]}
  old, new = changes.pop('vocab', ('', ''))
  vocab = [x.replace(old, new) for x in VOCAB]
  if changes.pop('fast', True):
    files['tokenizer__json'] = make_fast(**changes)
  with pytest.raises(errors.UserError, match=message) as error:
    read(tmp_path, 32, vocab, **files)
  assert str(tmp_path) in str(error.value) and '\n' not in str(error.value)


def read_bpe(folder, text, **settings):
  settings = {'tokenizer_class': 'PreTrainedTokenizerFast'} | settings
  files = {CONFIG: settings, 'tokenizer__json': json.loads(text)}
  return read(folder, 320, None, **files)[0]


@pytest.mark.parametrize('segments', [False, True])
def test_a_tokenizer_of_the_library_is_written_as_it_was_read(
  tmp_path, segments
):
  words = bpe.load()
  made = vocabulary.make_files(words, 64, segments)
  assert 'vocab.txt' not in made
  settings = json.loads(made['tokenizer_config.json'])
  assert ('token_type_ids' in settings['model_input_names']) == segments
  again = read_bpe(tmp_path, made['tokenizer.json'], **settings)
  assert again.ids([bpe.TEXT]) == words.ids([bpe.TEXT])
  # Where segments are read, those of second texts are BERT's.
  assert (again == words) != segments
  pair = again.library.encode('the', 'cat')
  assert pair.ids == words.encode('the', 'cat')['input_ids']
  assert pair.type_ids == [0, 0, 0, *[segments] * (len(pair.ids) - 3)]


@pytest.mark.parametrize(
  'said, settings',
  [
    ('differ in add_prefix_space', {'add_prefix_space': True}),
    ("cls_token is '<s>'", {'cls_token': '<s>'}),
    (
      'differ in <mail>',
      {'added_tokens_decoder': {300: {'content': '<mail>', 'lstrip': True}}},
    ),
    ('differ in <new>', {'additional_special_tokens': ['<new>']}),
    ("model in tokenizer.json is 'BPE'", {'tokenizer_class': 'BertTokenizer'}),
  ],
)
def test_settings_that_change_a_tokenizer_of_the_library_are_refused(
  tmp_path, said, settings
):
  with pytest.raises(errors.UserError, match=said):
    read_bpe(tmp_path, bpe.make(), **settings)
