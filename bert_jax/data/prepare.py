"""Text to training examples: vocabulary, sentence pairs, records, manifest.

Every document belongs to the logical shard that the hash of its text names;
the shards become records in parallel. Any number of workers gives the same
bytes, and after an interruption the same command continues.

  python -m bert_jax.data.prepare --input='books/*.txt' --layout=files \\
    --vocab=vocab.txt --output=/data/books --max_seq_length=128,512
"""

import contextlib
import hashlib
import json
import os
import shutil

import numpy as np
from absl import flags

import bert_jax
from bert_jax import command, errors, progress, tokenizer
from bert_jax.data import lock, shards, sources, vocab
from bert_jax.data import recipe as recipe_lib
from bert_jax.data import workers as workers_lib

_HASH_SPACE = 1 << 64
_FEW_DOCUMENTS = 50  # shards that would hold fewer are merged


def prepare(recipe: recipe_lib.Recipe, output: str, workers: int = 0) -> dict:
  """Makes the data of a recipe under `output`, unless it is there already.

  Args:
    recipe: what to make.
    output: a directory; it gets this name only when it is complete. Work in
      progress lies in `output`.partial and is continued.
    workers: processes; 0 is one per core.

  Returns:
    The manifest.

  Raises:
    errors.UserError: if the input cannot be used, or `output` holds the data
      of another recipe.
  """
  recipe.check()
  output = os.path.abspath(output)
  partial = output + '.partial'
  try:
    with lock.exclusive(output + '.lock'):
      if not os.path.exists(output):
        if not os.path.exists(os.path.join(partial, 'manifest.json')):
          _make(recipe, partial, workers)
        shutil.rmtree(os.path.join(partial, 'work'), ignore_errors=True)
        os.rename(partial, output)
      manifest = read_manifest(output)
  except OSError as error:
    raise errors.UserError(
      f'cannot write {output}: {error.strerror or error}; make room or use '
      'another directory, then run the same command again.'
    ) from error
  _check_same(manifest['recipe'], recipe.to_dict(), output)
  return manifest


def _make(recipe: recipe_lib.Recipe, partial: str, workers: int):
  """Makes everything under `partial`, the manifest last."""
  work = os.path.join(partial, 'work')
  vocab_path = os.path.join(partial, 'vocab.txt')
  if recipe.vocab:
    _check_size(recipe, tokenizer.read_vocab(recipe.vocab))
  _open_partial(work, recipe)
  documents = _sort_documents(recipe, work)
  _make_vocab(recipe, work, vocab_path)
  summaries = _make_shards(recipe, partial, documents, workers)
  manifest = _sum_up(recipe, documents, summaries, vocab_path)
  shards.write_json(os.path.join(partial, 'manifest.json'), manifest)


def read_manifest(directory: str) -> dict:
  """Reads the manifest of prepared data."""
  path = os.path.join(directory, 'manifest.json')
  try:
    return shards.read_json(path)
  except (OSError, ValueError) as error:
    raise errors.UserError(
      f'{directory} is not prepared data ({error}); remove it, or give the '
      'output of bert_jax.data.prepare.'
    ) from error


def _check_same(old: dict, new: dict, directory: str):
  changed = [
    f'{name}: {old.get(name)!r} there, {new.get(name)!r} now'
    for name in sorted({*old, *new})
    if old.get(name) != new.get(name)
  ]
  if changed:
    raise errors.UserError(
      f'{directory} was prepared by another recipe ({"; ".join(changed)}); '
      'use another directory or the old values.'
    )


def _open_partial(work: str, recipe: recipe_lib.Recipe):
  """Continues unfinished work of the same recipe, or starts anew."""
  path = os.path.join(work, 'recipe.json')
  if os.path.exists(path) and shards.read_json(path) == recipe.to_dict():
    return
  shutil.rmtree(os.path.dirname(work), ignore_errors=True)
  os.makedirs(work)
  shards.write_json(path, recipe.to_dict())


def _text_path(work: str, name) -> str:
  return os.path.join(work, f'text-{name}.jsonl')


def _sort_documents(recipe: recipe_lib.Recipe, work: str) -> dict:
  """Writes each document to its shard's file; returns how many there are."""
  done = os.path.join(work, 'documents.json')
  if os.path.exists(done):
    return shards.read_json(done)
  counts = dict.fromkeys(['heldout', *range(recipe.shards)], 0)
  total = recipe.max_documents or sources.total_bytes(recipe.inputs)
  unit = 'documents' if recipe.max_documents else 'B'
  size = 0
  with contextlib.ExitStack() as stack:
    bar = stack.enter_context(
      progress.Progress(total or None, unit, 'reading documents')
    )
    files = {
      name: stack.enter_context(open(_text_path(work, name), 'w'))
      for name in counts
    }
    documents = sources.documents(recipe.inputs, recipe.layout)
    for n, document in enumerate(documents):
      if recipe.max_documents and n == recipe.max_documents:
        break
      text = '\n'.join(document.paragraphs).encode('utf-8', 'surrogatepass')
      name = _shard_of(text, recipe)
      files[name].write(json.dumps(document.paragraphs) + '\n')
      counts[name] += 1
      size += len(text)
      bar.update(1 if recipe.max_documents else len(text))
  heldout = counts.pop('heldout')
  found = {'train': sum(counts.values()), 'heldout': heldout, 'bytes': size}
  _check_enough(recipe, found)
  shards.write_json(done, found)
  return found


def _shard_of(text: bytes, recipe: recipe_lib.Recipe):
  """Returns 'heldout' or the logical shard's number, by the text's hash."""
  digest = hashlib.blake2b(text, digest_size=16).digest()
  if int.from_bytes(digest[:8], 'little') < recipe.heldout * _HASH_SPACE:
    return 'heldout'
  return int.from_bytes(digest[8:], 'little') % recipe.shards


def _check_enough(recipe: recipe_lib.Recipe, found: dict):
  total = found['train'] + found['heldout']
  where = ', '.join(recipe.inputs)
  if not total:
    raise errors.UserError(f'{where} holds no text; give other files.')
  if total < 2 * shards.MIN_DOCUMENTS:
    raise errors.UserError(
      f'{where} holds {total} document(s) in layout {recipe.layout!r}; next '
      f'sentence prediction needs {2 * shards.MIN_DOCUMENTS} or more. Put '
      "blank lines between documents, or use layout 'files' for a document "
      'per file.'
    )
  for split in ('train', 'heldout'):
    if found[split] < shards.MIN_DOCUMENTS:
      raise errors.UserError(
        f'{found[split]} of {total} documents fall to the {split} split with '
        f'heldout={recipe.heldout}; it needs {shards.MIN_DOCUMENTS} or more. '
        f'Set data.heldout near {min(0.5, 10 / total):.2g}.'
      )


def _make_vocab(recipe: recipe_lib.Recipe, work: str, path: str):
  """Puts the vocabulary in place, given or trained on the training text."""
  if os.path.exists(path):
    return
  if recipe.vocab:
    words = tokenizer.read_vocab(recipe.vocab)
  else:
    texts = [_text_path(work, k) for k in range(recipe.shards)]
    paragraphs = (p for d in shards.read_texts(texts) for p in d)
    words = vocab.train(paragraphs, recipe.vocab_size, recipe.lowercase)
  vocab.write(words, path)


def _check_size(recipe: recipe_lib.Recipe, words):
  if len(words) != recipe.vocab_size:
    raise errors.UserError(
      f'{recipe.vocab} has {len(words)} entries, but vocab_size is '
      f'{recipe.vocab_size}; set data.vocab_size={len(words)}.'
    )


def _make_shards(recipe, partial, documents, workers) -> list[dict]:
  """Makes all shards; small corpora get fewer than the recipe asks for."""
  work = os.path.join(partial, 'work')
  n = recipe.shards
  while n % 2 == 0 and documents['train'] < _FEW_DOCUMENTS * n:
    n //= 2  # shard k takes over shard k + n: what is equal mod 2n is mod n

  def shard(split, number, of, names):
    return shards.Shard(
      split,
      number,
      of,
      tuple(_text_path(work, name) for name in names),
      os.path.join(partial, 'vocab.txt'),
      partial,
      work,
    )

  jobs = [shard('heldout', 0, 1, ['heldout'])]
  jobs += [shard('train', k, n, range(k, recipe.shards, n)) for k in range(n)]
  count = min(workers or workers_lib.cores(), len(jobs))
  summaries = []
  with progress.Progress(len(jobs), 'shards', 'making examples') as bar:
    arguments = [(job, recipe) for job in jobs]
    if count == 1:
      found = (shards.make(*a) for a in arguments)
    else:
      found = workers_lib.run(shards.make, arguments, count)
    for summary in found:
      summaries.append(summary)
      bar.update(1)
  return summaries


def _sum_up(recipe, documents, summaries, vocab_path) -> dict:
  """Returns the manifest: what was made, of what, and how to check it."""
  train = [s for s in summaries if s['split'] == 'train']
  counts = sum(np.load(s['token_counts']) for s in train)
  share = counts[counts > 0] / counts.sum()
  unknown = tokenizer.read_vocab(vocab_path).index('[UNK]')
  lengths = {}
  for length in recipe.lengths:
    files = [s['files'][str(length)] for s in train]
    made = sum(f['records'] for f in files)
    tokens = sum(f['tokens'] for f in files)
    lengths[str(length)] = {
      'pairs': made,
      'padding_share': round(1 - tokens / (made * length), 6),
      'random_share': round(sum(f['random'] for f in files) / made, 6),
    }
  return {
    'version': bert_jax.__version__,
    'recipe': recipe.to_dict(),
    'documents': documents,
    'sentences': sum(s['sentences'] for s in train),
    'tokens': int(counts.sum()),
    'unknown_share': round(float(counts[unknown] / counts.sum()), 8),
    'unigram_entropy': round(float(-(share * np.log(share)).sum()), 6),
    'vocab_sha256': shards.sha256(vocab_path),
    'lengths': lengths,
    'shards': [
      {k: v for k, v in s.items() if k != 'token_counts'} for s in summaries
    ],
  }


def _define_flags():
  flags.DEFINE_list('input', None, 'Files, globs, tfds:NAME/CONFIG:SPLIT.')
  flags.DEFINE_string('vocab', None, 'The vocabulary, one entry per line.')
  flags.DEFINE_string('output', None, 'The directory to make.')
  flags.DEFINE_list('max_seq_length', ['128'], 'Tokens of a pair: 128,512.')
  flags.DEFINE_enum(
    'layout',
    'paragraphs',
    sources.LAYOUTS,
    'Of plain text. paragraphs, sentences: one per line, blank lines between '
    'documents. files: each file is a document.',
  )
  flags.DEFINE_string('language', 'en', 'For sentence splitting, ISO 639-1.')
  flags.DEFINE_bool('cased', False, 'The vocabulary is cased.')
  flags.DEFINE_integer('passes', 5, 'Times each document is cut into pairs.')
  flags.DEFINE_float('short_seq_prob', 0.1, 'Share of shorter targets.')
  flags.DEFINE_float('heldout', 0.01, 'Share of documents for evaluation.')
  flags.DEFINE_integer('shards', 256, 'Logical shards.')
  flags.DEFINE_integer('seed', 0, 'Of all random choices.')
  flags.DEFINE_integer('workers', 0, 'Processes; 0 is one per core.')
  flags.mark_flags_as_required(['input', 'vocab', 'output'])


def _integer(text: str) -> int:
  try:
    return int(text)
  except ValueError:
    raise errors.UserError(
      f'--max_seq_length={text!r} is no number; give lengths such as 128,512.'
    ) from None


def main(argv):
  """Runs the command."""
  del argv
  f = flags.FLAGS
  recipe = recipe_lib.Recipe(
    inputs=tuple(f.input),
    layout=f.layout,
    language=f.language,
    max_documents=0,
    vocab=os.path.abspath(f.vocab),
    vocab_size=len(tokenizer.read_vocab(f.vocab)),
    lowercase=not f.cased,
    lengths=tuple(sorted({_integer(n) for n in f.max_seq_length})),
    passes=f.passes,
    short_seq_prob=f.short_seq_prob,
    heldout=f.heldout,
    shards=f.shards,
    seed=f.seed,
  )
  manifest = prepare(recipe, f.output, f.workers)
  for length, row in manifest['lengths'].items():
    print(
      f'{f.output}: length {length}: {row["pairs"]:,} pairs, '
      f'{row["padding_share"]:.1%} padding, {row["random_share"]:.1%} random'
    )


if __name__ == '__main__':
  _define_flags()
  command.run(main)
