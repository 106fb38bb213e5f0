"""`manifest.json`: recipe, inputs, counts and checksums of prepared data."""

import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import bert_jax
from bert_jax import errors
from bert_jax.corpus import layout_doubts, text_files
from bert_jax.data import store
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import files, storage
from bert_jax.tokenization import fast_tokenizer, tokenizer

NAME = 'manifest.json'
FORMAT = 2  # of the files for pre-training, see `store`
_CHECKSUM = 'checksum'


def vocab_path(directory: str) -> str:
  """Returns the path of the vocabulary of prepared data."""
  names = fast_tokenizer.FastTokenizer.file_name, tokenizer.Tokenizer.file_name
  fast, usual = (os.path.join(directory, x) for x in names)
  return fast if storage.exists(fast) else usual


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
  is_other = part == 'lengths' and manifest.get('format') != FORMAT
  if is_other or part not in manifest:
    raise errors.UserError(
      f'{directory} was made for another task, or by another version of bert_jax, '
      'whose files this one cannot read; name another folder, or delete it and '
      'prepare the data again by the same command.'
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
  return fast_tokenizer.load(vocab_path(directory), *how)


def get_constant_nsp(manifest: dict, length: int) -> float:
  """Returns the NSP accuracy of the better constant on the held-out rows."""
  split = (x for x in manifest['shards'] if x['split'] == 'heldout')
  held = [shard['files'][str(length)] for shard in split]
  share = sum(x['random'] for x in held) / max(sum(x['pairs'] for x in held), 1)
  return max(share, 1 - share)


def sum_up(
  recipe: Recipe,
  text: Any,
  summaries: Sequence[dict],
  tokens: np.ndarray,
  vocab_path: str,
) -> dict:
  """Returns the manifest of the data of a `stages.Text`.

  Args:
    summaries: of all shards, by `shards.make`.
    tokens: [V] how often each is in the training text.
  """
  train, heldout = (
    [s for s in summaries if s['split'] == x] for x in ('train', 'heldout')
  )
  share = tokens[tokens > 0] / tokens.sum()
  unk_id = fast_tokenizer.load(vocab_path).unk_id
  dropped = dict(text.counts)
  doubts = {x: dropped.pop(x) for x in layout_doubts.NAMES if x in dropped}
  if duplicates := sum(s['duplicates'] for s in summaries):
    dropped['duplicate_documents'] = duplicates
  return {
    'version': bert_jax.__version__,
    'format': FORMAT,
    'recipe': recipe.to_dict(),
    'accents': text.accents,
    'inputs': [
      {**given, 'train': _count(train, k), 'heldout': _count(heldout, k)}
      for k, given in enumerate(text.inputs)
    ],
    'cleaned': dict(sorted(dropped.items())),
    'doubts': doubts,
    'documents': {
      'train': sum(s['documents'] for s in train),
      'heldout': sum(s['documents'] for s in heldout),
      'bytes': sum(x['text_bytes'] for x in text.inputs),
    },
    'sentences': sum(s['sentences'] for s in train),
    'tokens': int(tokens.sum()),
    'unknown_share': round(float(tokens[unk_id] / tokens.sum()), 8),
    'unigram_entropy': round(float(-(share * np.log(share)).sum()), 6),
    'vocab_sha256': text_files.compute_sha256(vocab_path),
    'lengths': {str(n): _length(n, train, recipe) for n in recipe.lengths},
    'shards': summaries,
  }


def _count(summaries: Sequence[dict], source: int) -> dict[str, int]:
  # A shard's counts end at the last input that it has text of.
  return {
    name: sum(sum(s['inputs'][k][source : source + 1]) for s in summaries)
    for k, name in enumerate(('parts', 'tokens'))
  }


def _length(length: int, train: Sequence[dict], recipe) -> dict:
  made = [s['files'][str(length)] for s in train]
  kind, *_ = store.choose_format(recipe.rows)
  rows, pairs, tokens, random, unused = (
    sum(f[name] for f in made)
    for name in ('records', kind, 'tokens', 'random', 'unused_tokens')
  )
  of_pairs = {
    # Without packing, each pair would have its own row.
    'padding_share_unpacked': round(1 - tokens / (pairs * length), 6),
    'random_share': round(random / pairs, 6),
  }
  return {
    'rows': rows,
    kind: pairs,
    'padding_share': round(1 - tokens / (rows * length), 6),
    **(of_pairs if kind == 'pairs' else {}),
    'unused_tokens': unused,  # of the text, that are in no row of all passes
    'unused_share': round(unused / sum(s['tokens'] for s in train), 6),
  }
