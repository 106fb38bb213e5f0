"""Records and prepared data made by hand."""

import hashlib
import itertools

import numpy as np

from bert_jax.data import manifest_file, records, row_format


def write(folder, split: str, length: int, rows, vocab_size: int) -> str:
  """Writes prepared data with a file for each list of records."""
  shards = []
  for k, own in enumerate(rows):
    path = folder / f'{split}-{k}'
    records.write(str(path), own)
    raw = path.read_bytes()
    file = {'name': path.name, 'records': len(own), 'bytes': len(raw)}
    file['sha256'] = hashlib.sha256(raw).hexdigest()
    if split == 'heldout':
      file['inputs'] = [[0, len(own)]]
    shards.append({'split': split, 'files': {str(length): file}})
  (folder / 'vocab.txt').write_text('[PAD]\n')
  manifest = {
    'recipe': {'vocab_size': vocab_size, 'pack': 1},
    'inputs': [{'input': 'text'}],
    'vocab_sha256': hashlib.sha256(b'[PAD]\n').hexdigest(),
    'lengths': {str(length): {}},
    'shards': shards,
  }
  manifest_file.write(str(folder), manifest)
  return str(folder)


def record(pairs, ids='<u2') -> bytes:
  """Returns the record of a row of pairs (first ids, second ids, is_random)."""
  texts = [text for first, second, _ in pairs for text in (first, second)]
  ends = list(itertools.accumulate(map(len, texts)))
  spans = np.array(list(zip([0, *ends[:-1]], ends, strict=True)))
  flat = np.array([i for text in texts for i in text], ids)
  [made] = row_format.encode(
    flat,
    spans.reshape(-1, 2, 2),
    np.array([is_random for _, _, is_random in pairs]),
    np.arange(len(pairs)),
    np.array([len(pairs)]),
  )
  return made
