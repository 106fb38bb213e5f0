"""Prepared data made by hand, and read plainly."""

import hashlib
import os

import numpy as np

from bert_jax.data import manifest_file, store
from bert_jax.tokenization import tokenizer


def write(
  folder, split: str, length: int, files, vocab_size: int, pack: int = 1
) -> str:
  """Writes prepared data with a shard for each list of rows, see `shard`."""
  shards = [
    shard(folder, f'{split}-{k}', rows, length, vocab_size, pack)
    for k, rows in enumerate(files)
  ]
  (folder / 'vocab.txt').write_text('[PAD]\n')
  manifest = {
    'format': manifest_file.FORMAT,
    'recipe': {'vocab_size': vocab_size, 'pack': pack},
    'inputs': [{'input': 'text'}],
    'vocab_sha256': hashlib.sha256(b'[PAD]\n').hexdigest(),
    'lengths': {str(length): {}},
    'shards': [{'split': split, **entry} for entry in shards],
  }
  manifest_file.write(str(folder), manifest)
  return str(folder)


def shard(folder, name, rows, length, vocab_size, pack=1) -> dict:
  """Writes a shard of rows, lists of pairs (first ids, second ids, is_random).

  Its texts stand one after the other in its tokens. Lists of (ids, False) make
  rows of sentences instead; then a `pack` of 1 is for 'doc_sentences'.
  """
  pairs = [pair for row in rows for pair in row]
  texts = [text for *both, _ in pairs for text in both]
  ends = np.cumsum([0, *map(len, texts)])
  single = bool(pairs) and len(texts) == len(pairs)
  kind, _, number = store.choose_format('sentences' if single else 'pairs')
  spans = np.stack([ends[:-1], ends[1:]], 1).reshape(-1, 2 - single, 2)
  ids = np.array([i for text in texts for i in text])
  arrays = [store.encode(spans, np.array([x for *_, x in pairs], bool))]
  if pack > 1:
    arrays.append(np.cumsum([0, *map(len, rows)]).astype(number))
  id_type = tokenizer.choose_id_type(vocab_size)
  file = store.write(str(folder), name, arrays)
  file |= {
    'records': len(rows),
    kind: len(pairs),
    'inputs': [[0, len(rows)]],
  }
  return {
    'tokens_file': store.write(
      str(folder), f'{name}.tokens', [ids.astype(id_type)]
    ),
    'files': {str(length): file},
  }


def read_pairs(
  directory: str, split: str, length: int
) -> list[tuple[int, list[str], list[str]]]:
  """Returns (is_random, first tokens, second tokens) of a split's pairs."""
  vocab = tokenizer.read_vocab(manifest_file.vocab_path(directory))
  pairs = []
  for shard in manifest_file.read(directory)['shards']:
    if shard['split'] != split:
      continue
    file = shard['files'][str(length)]
    ids = np.fromfile(
      os.path.join(directory, shard['tokens_file']['name']),
      tokenizer.choose_id_type(len(vocab)),
    )
    path = os.path.join(directory, file['name'])
    for begins, sizes, is_random in np.fromfile(
      path, store.PAIR, file['pairs']
    ):
      both = zip(begins.tolist(), sizes.tolist(), strict=True)
      texts = [[vocab[i] for i in ids[at : at + n]] for at, n in both]
      pairs.append((int(is_random), *texts))
  return pairs
