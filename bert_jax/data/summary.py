"""What the terminal and `DATA_CARD.md` say of prepared data: facts and warnings."""

import collections
import unicodedata
from collections.abc import Sequence

from bert_jax import errors
from bert_jax.corpus import layout_doubts, text_files
from bert_jax.data import store
from bert_jax.runtime import cards
from bert_jax.tokenization import unknown

_COUNTS = (
  'rows pairs parts padding_share padding_share_unpacked random_share'
).split()
_FACTS = 'version vocab_sha256 accents sentences tokens unigram_entropy'.split()

_UNUSED = 0.01  # share of tokens in no row to warn of
_CAPITALS = 0.05  # maximum share of an uncased vocabulary's pieces
_RANDOM = 0.8  # of the pairs; of long documents 55 to 60 % are
_FEW = 3  # sentences of a document
_ENOUGH = 100  # documents to judge by

_DOUBTS = {
  layout_doubts.WRAPPED: 'whose lines seem to be hard-wrapped, which ends '
  'sentences where a line ends; with data.layout=files, the lines of each file, '
  'or text of JSON, are joined',
  layout_doubts.UNBROKEN: 'of much text without a blank line, each a single '
  'document; if each line is one, set data.layout=lines, or else put blank '
  'lines between documents',
  layout_doubts.BROKEN: 'with many short documents, since blank lines separate '
  'them; if each file is a document, set data.layout=files',
}
_SHORT = {
  'files': '',
  'lines': 'if they are longer than a line, put blank lines between documents, '
  'with data.layout=paragraphs; ',
  **dict.fromkeys(
    ('paragraphs', 'sentences'),
    'if blank lines separate paragraphs or sentences, put them between documents '
    'only or, with data.layout=files, each document in a file; ',
  ),
}


def describe(manifest: dict) -> list[str]:
  """Returns lines for the terminal: documents, inputs, accents and rows."""
  split, inputs, lines = manifest['documents'], manifest['inputs'], []
  if manifest['cleaned']:
    counted = (f'{x} {n:,}' for x, n in manifest['cleaned'].items())
    lines.append(f'cleaned: {", ".join(counted)}')
  lines.append(
    f'data: {errors.count(split["train"], "document")} or parts of long ones, '
    f'{manifest["tokens"]:,} tokens ({manifest["unknown_share"]:.2%} unknown, '
    f'{manifest["unknown_characters"]:.2%} of the characters), '
    f'{split["heldout"]:,} held out'
  )
  lines += [
    f'{x["input"]}: {_list_kinds(x["files"])}'
    f'{errors.count(x["documents"], "document")}, {x["train"]["tokens"]:,} tokens '
    f'to train on, {x["heldout"]["tokens"]:,} held out'
    for x in inputs
    if x['files'] or len(inputs) > 1
  ]
  lines.append(f'accents are {manifest["accents"]}')
  kind, *_ = store.choose_format(manifest['recipe'].get('rows', 'pairs'))
  return lines + [
    f'length {length}: {row[kind]:,} {kind} in {row["rows"]:,} rows, '
    f'{row["padding_share"]:.1%} padding, '
    + (f'{row["random_share"]:.1%} random, ' if kind == 'pairs' else '')
    + f'{row["unused_share"]:.2%} of the tokens in no row'
    for length, row in manifest['lengths'].items()
  ]


def _list_kinds(read: Sequence[dict]) -> str:
  """Returns how many files have which extension: '4 JSONL, 1 text, '."""
  names = (text_files.get_extension(x['path'])[1:] for x in read)
  counts = collections.Counter(
    'text' if name in ('', 'txt') else name.upper() for name in names
  )
  return ''.join(f'{n:,} {kind}, ' for kind, n in counts.most_common())


def make_card(manifest: dict) -> str:
  """Returns the data card as Markdown."""
  rows = manifest['lengths']
  columns = [x for x in _COUNTS if all(x in row for row in rows.values())]
  lengths = [(n, *(row[x] for x in columns)) for n, row in rows.items()]
  sections = {
    'Text': describe_text(manifest),
    'Cleaned': cards.list_facts(manifest['cleaned']),
    'Rows': cards.make_table(('tokens', *columns), lengths),
    'Recipe': cards.list_fields(manifest['recipe']),
  }
  what = 'Sentence pairs' if 'pairs' in columns else 'Rows of sentences'
  return cards.make_card(f'{what} for BERT', sections)


def describe_text(manifest: dict) -> str:
  """Returns what the data were made of, for cards: inputs and facts."""
  head = 'input', 'weight', 'files', 'documents', 'bytes of text'
  rows = [
    (
      f'`{cards.name_paths(x["input"])}`',
      round(x.get('weight', 1.0), 3),
      *(len(x['files']), x['documents'], x['text_bytes']),
      *(x['train']['tokens'], x['heldout']['tokens'], x['heldout']['parts']),
    )
    for x in manifest['inputs']
  ]
  head += 'training tokens', 'tokens held out', 'parts held out'
  facts = {name: manifest[name] for name in _FACTS}
  facts['unknown_share'] = f'{manifest["unknown_share"]:.2%}'
  for name, where in (('train', 'to train on'), ('heldout', 'held out')):
    facts[f'documents, or parts, {where}'] = manifest['documents'][name]
  return f'{cards.make_table(head, rows)}\n\n{cards.list_facts(facts)}'


def list_warnings(manifest: dict, words: Sequence[str]) -> list[str]:
  """Returns lines for the terminal on text that may be misread."""
  recipe = manifest['recipe']
  lines = warn_of_invalid(manifest['cleaned'], manifest['inputs'])
  if not name_language(manifest, words):
    lines.append(
      'WARNING: most letters of the vocabulary are not Latin, but data.language=en, '
      'by whose rules sentences are split; prepare the data again with their '
      'language, such as data.language=ko'
    )
  lines += _warn_of_layout(manifest) + _warn_of_shares(manifest)
  lines += unknown.warn(
    manifest['unknown_share'],
    manifest['unknown_characters'],
    'train a vocabulary on this text with bert_jax.data.vocab',
  )
  if recipe['vocab']:
    lines += warn_of_case(words, recipe['lowercase'])
  return lines + [
    f'WARNING: {row["unused_tokens"]:,} tokens ({row["unused_share"]:.1%}) are in '
    f'no row of {length} tokens: '
    + ('pairs are truncated to fit, and ' if 'random_share' in row else '')
    + 'weights may leave documents out; more passes (data.passes) use more'
    for length, row in manifest['lengths'].items()
    if row['unused_share'] > _UNUSED
  ]


def _warn_of_layout(manifest: dict) -> list[str]:
  """Warns of text that may have another layout than it was read in."""
  doubts, documents = manifest.get('doubts', {}), manifest['documents']['train']
  lines = [
    f'WARNING: the input has {errors.count(doubts[x], "file")} {said}'
    for x, said in _DOUBTS.items()
    if doubts.get(x, 0) > (x == layout_doubts.BROKEN)  # a file may be a corpus
  ]
  mean = manifest['sentences'] / max(documents, 1)
  random = max(x.get('random_share', 0) for x in manifest['lengths'].values())
  more, then = '', 'each is alone in its part of a row'
  if 'rows' not in manifest['recipe']:
    more = f', and {random:.0%} of the pairs are random'
    then = 'train with objective.nsp=False'
  if documents >= _ENOUGH and (mean < _FEW or random > _RANDOM):
    lines.append(
      f'WARNING: documents have {mean:.1f} sentences on average{more}: '
      f'{_SHORT[manifest["recipe"]["layout"]]}if they are so short, {then}'
    )
  return lines


def _warn_of_shares(manifest: dict) -> list[str]:
  """Warns of inputs without text, and of less general text than was asked for."""
  inputs, asked = manifest['inputs'], manifest['recipe'].get('general_share', 0)
  used = [x['train']['tokens'] * x.get('weight', 1.0) for x in inputs]
  lines = [
    f'WARNING: nothing of {x["input"]} is trained on: it has no text, or '
    'data.max_documents ends before it'
    for x, tokens in zip(inputs, used, strict=True)
    if not tokens
  ]
  if asked and 0 < used[-1] < asked / 2 * sum(used):
    lines.append(
      f'WARNING: {inputs[-1]["input"]} is {used[-1] / sum(used):.2%} of the text, '
      f'not {asked:.0%} as data.general_share asks; give more of it'
    )
  return lines


def warn_of_case(words: Sequence[str], lowercase: bool) -> list[str]:
  """Returns a line if the text's case does not seem to be a vocabulary's."""
  ordinary = [w for w in words if not w.startswith('[')]
  capital = sum(w != w.lower() for w in ordinary) / max(len(words), 1)
  if capital <= _CAPITALS if lowercase else capital or not words:
    return []
  has = 'none, so those never occur' if lowercase else 'some'
  return [
    f'WARNING: {capital:.0%} of the pieces of the vocabulary have capital letters, '
    f'but with data.lowercase={lowercase} the text has {has}: give '
    f'data.lowercase={not lowercase} (with{"" if lowercase else "out"} --cased)'
  ]


def name_language(manifest: dict, words: Sequence[str]) -> str:
  """Returns data.language; '' if it is the default, English, and cannot be."""
  letters = [c for word in words for c in word if c.isalpha()]
  latin = sum(unicodedata.name(c, '').startswith('LATIN') for c in letters)
  language = manifest['recipe']['language']
  return language if language != 'en' or 2 * latin >= len(letters) else ''


def warn_of_invalid(cleaned: dict, inputs: Sequence[dict]) -> list[str]:
  """Returns a line for the terminal if some text is not UTF-8."""
  if not (count := cleaned.get('invalid_utf8')):
    return []
  listed = (file for given in inputs for file in given['files'])
  path = max(listed, key=lambda x: x.get('invalid_utf8', 0))['path']
  return [
    f'WARNING: {count:,} sequences of bytes, most of them in {path}, are not UTF-8, '
    'and their characters are lost; leave out what is not text, or '
    + errors.advise_converting(path)
  ]
