"""`manifest.json`: recipe, inputs, counts and checksums of prepared data."""

import collections
import hashlib
import json
import os
import unicodedata
from collections.abc import Sequence

import numpy as np

import bert_jax
from bert_jax import errors
from bert_jax.corpus import layout_doubts, text_files
from bert_jax.data import layout_warnings
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import files, storage
from bert_jax.tokenization import tokenizer, unknown

NAME = 'manifest.json'
FORMAT = 2  # of the files for pre-training, see `store`
_CHECKSUM = 'checksum'

_UNUSED = 0.01  # share of tokens in no row to warn of
_CAPITALS = 0.05  # maximum share of an uncased vocabulary's pieces


def vocab_path(directory: str) -> str:
  """Returns the path of the vocabulary of prepared data."""
  return os.path.join(directory, 'vocab.txt')


def read(directory: str, part: str = 'lengths') -> dict:
  """Reads the manifest of prepared data, and compares its checksum.

  Args:
    part: what it must describe; only data for pre-training have `lengths`.
  """
  path = os.path.join(directory, NAME)
  other = f'{directory} is not prepared data: {NAME}'
  advice = 'name another folder: one that bert_jax.data.prepare has made.'
  kinds = FileNotFoundError, ValueError, TypeError, AttributeError
  with errors.explaining(other, advice, kinds):
    manifest = files.load_json(path)
    expected = manifest.pop(_CHECKSUM, None)
  if expected != _compute_checksum(manifest):
    raise errors.UserError(
      f'{path} is not as it was written: its checksum '
      f'{"differs" if expected else "is missing"}; restore it from a copy, or '
      'prepare the data again.'
    )
  if part not in manifest:
    raise errors.UserError(
      f'{path} has no {part!r}: {directory} was made for another task '
      '(pre-training or fine-tuning); name another folder.'
    )
  if part == 'lengths' and manifest.get('format') != FORMAT:
    raise errors.UserError(
      f'{directory} was prepared by another version of bert_jax, whose files '
      'this one cannot read; delete it, and prepare the data again by the same '
      'command.'
    )
  return manifest


def write(directory: str, manifest: dict):
  """Writes the manifest of prepared data, with a checksum."""
  manifest = json.loads(json.dumps(manifest))  # as it will be read
  manifest[_CHECKSUM] = _compute_checksum(manifest)
  files.write_json(os.path.join(directory, NAME), manifest)


def _compute_checksum(manifest: dict) -> str:
  text = json.dumps(manifest, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def load_tokenizer(directory: str) -> tokenizer.Tokenizer:
  """Returns the tokenizer that prepared data was made with."""
  recipe = read(directory, 'recipe')['recipe']
  how = recipe['lowercase'], recipe['strip_accents'], recipe.get('added', ())
  return tokenizer.Tokenizer.load(vocab_path(directory), *how)


def describe(manifest: dict) -> list[str]:
  """Returns lines for the terminal: documents, inputs, accents and rows."""
  split, inputs = manifest['documents'], manifest['inputs']
  several = (x for x in inputs if len(x['files']) > 1)
  kinds = [f'{x["input"]}: {_list_kinds(x["files"])}' for x in several]
  lines = [f'files read: {"; ".join(kinds)}'] if kinds else []
  if manifest['cleaned']:
    counted = (f'{x} {n:,}' for x, n in manifest['cleaned'].items())
    lines.append(f'cleaned: {", ".join(counted)}')
  lines.append(
    f'data: {errors.count(split["train"], "document")} or parts of long ones, '
    f'{manifest["tokens"]:,} tokens ({manifest["unknown_share"]:.2%} unknown, '
    f'{manifest["unknown_characters"]:.2%} of the characters), '
    f'{split["heldout"]:,} held out'
  )
  for given in inputs if len(inputs) > 1 else ():
    train, held = (given[x]['tokens'] for x in ('train', 'heldout'))
    lines.append(
      f'{given["input"]}: {errors.count(given["documents"], "document")}, '
      f'{train:,} tokens to train on, {held:,} held out '
      f'({held / max(train + held, 1):.1%}, '
      f'{given["heldout"]["parts"]:,} documents or parts of long ones)'
    )
  lines.append(f'accents are {manifest["accents"]}')
  return lines + [
    f'length {length}: {row["pairs"]:,} pairs in {row["rows"]:,} rows, '
    f'{row["padding_share"]:.1%} padding, {row["random_share"]:.1%} random, '
    f'{row["unused_share"]:.2%} of the tokens in no row'
    for length, row in manifest['lengths'].items()
  ]


def _list_kinds(read: Sequence[dict]) -> str:
  """Returns how many files have which extension: '4 JSONL, 1 text'."""
  names = (text_files.get_extension(x['path'])[1:] for x in read)
  counts = collections.Counter(
    'text' if name in ('', 'txt') else name.upper() for name in names
  )
  return ', '.join(f'{n:,} {kind}' for kind, n in counts.most_common())


def get_constant_nsp(manifest: dict, length: int) -> float:
  """Returns the NSP accuracy of the better constant on the held-out rows."""
  split = (x for x in manifest['shards'] if x['split'] == 'heldout')
  held = [shard['files'][str(length)] for shard in split]
  share = sum(x['random'] for x in held) / max(sum(x['pairs'] for x in held), 1)
  return max(share, 1 - share)


def list_warnings(manifest: dict, words: Sequence[str]) -> list[str]:
  """Returns lines for the terminal on text that the vocabulary misreads."""
  recipe = manifest['recipe']
  lines = warn_of_invalid(manifest['cleaned'], manifest['inputs'])
  if not name_language(manifest, words):
    lines.append(
      'WARNING: most letters of the vocabulary are not Latin, but data.language=en, '
      'by whose rules sentences are split; prepare the data again with their '
      'language, such as data.language=ko'
    )
  lines += layout_warnings.find(manifest)
  lines += unknown.warn(
    manifest['unknown_share'],
    manifest['unknown_characters'],
    'train a vocabulary on this text with bert_jax.data.vocab',
  )
  if recipe['vocab']:
    lines += warn_of_case(words, recipe['lowercase'])
  return lines + [
    f'WARNING: {row["unused_tokens"]:,} tokens ({row["unused_share"]:.1%}) are in '
    f'no row of {length} tokens: pairs are truncated to fit, and weights may leave '
    'documents out; more passes (data.passes) use more'
    for length, row in manifest['lengths'].items()
    if row['unused_share'] > _UNUSED
  ]


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


def sum_up(
  recipe: Recipe,
  accents: str,
  inputs: Sequence[dict],
  counts: dict[str, int],
  summaries: Sequence[dict],
  vocab_path: str,
) -> dict:
  """Returns the manifest of the prepared data."""
  train, heldout = (
    [s for s in summaries if s['split'] == x] for x in ('train', 'heldout')
  )
  counted = (storage.read(s['token_counts']['path']) for s in train)
  tokens = sum(np.frombuffer(raw, np.int64) for raw in counted)
  share = tokens[tokens > 0] / tokens.sum()
  unk_id = tokenizer.read_vocab(vocab_path).index('[UNK]')
  dropped = dict(counts)
  doubts = {x: dropped.pop(x) for x in layout_doubts.NAMES if x in dropped}
  if duplicates := sum(s['duplicates'] for s in summaries):
    dropped['duplicate_documents'] = duplicates
  return {
    'version': bert_jax.__version__,
    'format': FORMAT,
    'recipe': recipe.to_dict(),
    'accents': accents,
    'inputs': [
      {**given, 'train': _count(train, k), 'heldout': _count(heldout, k)}
      for k, given in enumerate(inputs)
    ],
    'cleaned': dict(sorted(dropped.items())),
    'doubts': doubts,
    'documents': {
      'train': sum(s['documents'] for s in train),
      'heldout': sum(s['documents'] for s in heldout),
      'bytes': sum(i['text_bytes'] for i in inputs),
    },
    'sentences': sum(s['sentences'] for s in train),
    'tokens': int(tokens.sum()),
    'unknown_share': round(float(tokens[unk_id] / tokens.sum()), 8),
    'unigram_entropy': round(float(-(share * np.log(share)).sum()), 6),
    'vocab_sha256': text_files.compute_sha256(vocab_path),
    'lengths': {str(n): _length(n, train, recipe) for n in recipe.lengths},
    'shards': [
      {k: v for k, v in s.items() if k != 'token_counts'} for s in summaries
    ],
  }


def _count(summaries: Sequence[dict], source: int) -> dict[str, int]:
  # A shard's counts end at the last input that it has text of.
  return {
    name: sum(sum(s['inputs'][k][source : source + 1]) for s in summaries)
    for k, name in enumerate(('parts', 'tokens'))
  }


def _length(length: int, train: Sequence[dict], recipe) -> dict:
  made = [s['files'][str(length)] for s in train]
  rows, pairs, tokens, random, unused = (
    sum(f[name] for f in made)
    for name in ('records', 'pairs', 'tokens', 'random', 'unused_tokens')
  )
  return {
    'rows': rows,
    'pairs': pairs,
    'padding_share': round(1 - tokens / (rows * length), 6),
    # Without packing, each pair would have its own row.
    'padding_share_unpacked': round(1 - tokens / (pairs * length), 6),
    'random_share': round(random / pairs, 6),
    'unused_tokens': unused,  # of the text, that are in no row of all passes
    'unused_share': round(unused / sum(s['tokens'] for s in train), 6),
  }


def check_recipe(old: dict, new: dict, directory: str):
  """Raises errors.UserError if data was made with another recipe."""
  if new['strip_accents'] is None:  # keep the earlier decision
    new = {**new, 'strip_accents': old['strip_accents']}
  changed = errors.find_changes(old, new)
  if changed:
    raise errors.UserError(
      f'{directory} was prepared by another recipe ({"; ".join(changed)}); '
      'use another directory or the old values.'
    )


def check_inputs(old: Sequence[dict], paths: dict[str, int], directory: str):
  """Raises errors.UserError if input files changed; {} if they were deleted."""
  was = {f['path']: f['bytes'] for i in old for f in i['files']}
  changed = [
    f'bytes of {path}: {was.get(path, "none")}, now {paths.get(path, "none")}'
    for path in sorted({*was, *paths})
    if was.get(path) != paths.get(path)
  ]
  if paths and changed:
    raise errors.UserError(
      f'the input has changed since {directory} was prepared '
      f'({errors.listing(changed, most=3)}); put the old files back, or use '
      'another directory. Training on what is prepared needs no text: '
      f'bert_jax.main --config.data.dir={directory}'
    )
