"""Compares an exported model in bert_jax and transformers, in float32.

Each line runs in the environment that it needs:

  python benchmarks/parity/hf_parity.py ours --model=DIR --text=FILE \\
    --output=A.npz
  python benchmarks/parity/hf_parity.py theirs --model=DIR --text=FILE \\
    --output=B.npz
  python benchmarks/parity/hf_parity.py compare A.npz B.npz

`ours` needs bert_jax; `theirs` needs torch and transformers 4 or 5, and fails
on missing and unexpected weights. `compare` fails when token ids or segment
ids differ, or logits by more than 1e-5.
"""

import argparse
import json
import os
import re
import sys

import numpy as np

_PAIRS = 100
_LENGTH = 512  # tokens, or what the model takes if that is less
_PREDICTIONS = 8  # positions per pair, masked, whose logits are compared
_BATCH = 20
_TOLERANCE = 1e-5


def _sentence_pairs(path):
  """Returns 100 pairs of neighbouring sentences, spread over a text file."""
  with open(path, encoding='utf-8-sig') as f:
    text = ' '.join(f.read().split())
  sentences = re.split(r'(?<=[.!?])\s+', text)
  sentences = [s for s in sentences if 20 <= len(s) <= 400]
  if len(sentences) < 2 * _PAIRS:
    sys.exit(f'error: {path} has too few sentences; use a file of prose.')
  step = (len(sentences) - 1) // _PAIRS
  return [tuple(sentences[i * step : i * step + 2]) for i in range(_PAIRS)]


def _masked(ids, pad, cls, sep, mask):
  """Masks some tokens of each row.

  Args:
    ids: [N, S], padded with `pad`.
    pad, cls, sep, mask: ids of special tokens; these are not masked.

  Returns:
    The ids with [MASK] in some positions [N, S], and these positions [N, P].
  """
  ids = ids.copy()
  places = []
  for row in ids:
    free = np.flatnonzero(~np.isin(row, [pad, cls, sep]))
    spread = np.linspace(0, len(free) - 1, _PREDICTIONS)
    places.append(free[spread.round().astype(int)])
    row[places[-1]] = mask
  return ids, np.array(places)


def ours(model, text):
  """Returns the arrays to compare, from bert_jax."""
  import jax

  from bert_jax.interop import hf_load
  from bert_jax.model import heads

  jax.config.update('jax_default_matmul_precision', 'highest')
  params, config, with_nsp, tokenizer, _ = hf_load.read(model)
  length = min(_LENGTH, config.max_positions)
  rows = [
    tokenizer.encode(a, b, max_length=length) for a, b in _sentence_pairs(text)
  ]
  ids, mask, segments = (
    np.array([row[key] for row in rows], np.int32)
    for key in ('input_ids', 'input_mask', 'segment_ids')
  )
  t = tokenizer
  masked, places = _masked(ids, t.pad_id, t.cls_id, t.sep_id, t.mask_id)
  bert = heads.PretrainingModel(config, with_nsp)
  forward = jax.jit(lambda batch: bert.apply({'params': params}, batch))
  mlm, nsp = [], []
  for i in range(0, _PAIRS, _BATCH):
    batch = {
      'input_ids': masked,
      'input_mask': mask,
      'segment_ids': segments,
      'masked_lm_positions': places,
    }
    logits = forward({key: x[i : i + _BATCH] for key, x in batch.items()})
    mlm.append(np.asarray(logits[0]))
    if with_nsp:
      nsp.append(np.asarray(logits[1]))
  arrays = {'ids': ids, 'segments': segments, 'mlm': np.concatenate(mlm)}
  return arrays | ({'nsp': np.concatenate(nsp)} if nsp else {})


def theirs(model, text):
  """Returns the arrays to compare, from transformers."""
  import torch
  import transformers

  with open(os.path.join(model, 'config.json'), encoding='utf-8') as f:
    architecture = json.load(f)['architectures'][0]
  bert, info = getattr(transformers, architecture).from_pretrained(
    model, output_loading_info=True, dtype=torch.float32
  )
  wrong = {key: sorted(value) for key, value in info.items() if value}
  if wrong:
    sys.exit(f'error: {architecture} loaded with {wrong}')
  print(f'{architecture}, transformers {transformers.__version__}: all loaded')
  bert.eval()
  t = transformers.AutoTokenizer.from_pretrained(model)
  length = min(_LENGTH, t.model_max_length)
  a, b = zip(*_sentence_pairs(text), strict=True)
  encoded = t(
    list(a), list(b), padding='max_length', truncation=True, max_length=length
  )
  ids, mask, segments = (
    np.array(encoded[key])
    for key in ('input_ids', 'attention_mask', 'token_type_ids')
  )
  masked, places = _masked(
    ids, t.pad_token_id, t.cls_token_id, t.sep_token_id, t.mask_token_id
  )
  mlm, nsp = [], []
  for i in range(0, _PAIRS, _BATCH):
    rows = slice(i, i + _BATCH)
    with torch.no_grad():
      out = bert(
        input_ids=torch.tensor(masked[rows]),
        attention_mask=torch.tensor(mask[rows]),
        token_type_ids=torch.tensor(segments[rows]),
      )
    if architecture == 'BertForPreTraining':
      logits = out.prediction_logits
      nsp.append(out.seq_relationship_logits.numpy())
    else:
      logits = out.logits
    mlm.append(
      np.take_along_axis(logits.numpy(), places[rows][..., None], axis=1)
    )
  arrays = {'ids': ids, 'segments': segments, 'mlm': np.concatenate(mlm)}
  return arrays | ({'nsp': np.concatenate(nsp)} if nsp else {})


def compare(path_a, path_b):
  """Prints the largest differences; returns 1 if they are too large."""
  with np.load(path_a) as f:
    a = dict(f)
  with np.load(path_b) as f:
    b = dict(f)
  if a.keys() != b.keys():
    print(f'FAIL: {sorted(a)} against {sorted(b)}')
    return 1
  good = True
  for key in a:
    if a[key].shape != b[key].shape:
      print(f'{key:<9} FAIL  {a[key].shape} against {b[key].shape}')
      good = False
    elif key in ('ids', 'segments'):
      different = int((a[key] != b[key]).sum())
      good &= not different
      verdict = 'FAIL' if different else 'ok'
      print(f'{key:<9} {verdict:<5} {different} of {a[key].size} differ')
    else:
      worst = np.abs(a[key] - b[key]).max()
      largest = np.abs(b[key]).max()
      # float32 keeps seven digits, so logits of 10 cannot agree to 1e-5.
      limit = _TOLERANCE * max(1, largest)
      kind = 'absolute' if limit == _TOLERANCE else 'relative to the largest'
      good &= bool(worst <= limit)  # False for NaN, too
      verdict = 'ok' if worst <= limit else 'FAIL'
      print(
        f'{key:<9} {verdict:<5} differs by {worst:.2e} at most; the largest '
        f'is {largest:.3g}; allowed: 1e-5 {kind}'
      )
  print('PASS' if good else 'FAIL')
  return 0 if good else 1


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  roles = parser.add_subparsers(dest='role', required=True)
  for role in (ours, theirs):
    sub = roles.add_parser(role.__name__)
    for name in ('--model', '--text', '--output'):
      sub.add_argument(name, required=True)
    sub.set_defaults(role=role)
  sub = roles.add_parser('compare')
  sub.add_argument('ours')
  sub.add_argument('theirs')
  sub.set_defaults(role=compare)
  args = parser.parse_args()
  if args.role is compare:
    return compare(args.ours, args.theirs)
  np.savez(args.output, **args.role(args.model, args.text))
  return 0


if __name__ == '__main__':
  sys.exit(main())
