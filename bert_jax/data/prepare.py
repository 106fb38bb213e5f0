"""Text to training examples: vocabulary, sentence pairs, records, manifest.

First documents are read, cleaned and sorted into logical shards by the hash of
their text; then each shard becomes records. Any number of workers and any
runner give the same bytes, and after an interruption the same command
continues.

  python -m bert_jax.data.prepare --input='books/*.txt' --layout=files \\
    --vocab=vocab.txt --output=/data/books --max_seq_length=128,512

With --runner=beam, Beam's own options come after two dashes:

  python -m bert_jax.data.prepare ... --runner=beam -- \\
    --runner=FlinkRunner --flink_master=HOST:8081
"""

import collections
import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from absl import flags

from bert_jax import command, errors, progress, tokenizer
from bert_jax.data import (
  beam,
  card,
  files,
  lock,
  records,
  shards,
  sources,
  spill,
  vocab,
)
from bert_jax.data import manifest as manifest_lib
from bert_jax.data import recipe as recipe_lib
from bert_jax.data import workers as workers_lib

_FEW_DOCUMENTS = 50  # shards that would hold fewer are merged
_MIN_SHARDS = 256
_SHARD_BYTES = 64 << 20  # of text; a worker needs about three times as much
_EXAMPLES = 3  # rows that the card shows

# (fn, jobs) -> results, in order; fn leaves its result in a file.
Runner = Callable[[Callable, Sequence[tuple]], Iterator]


def prepare(
  recipe: recipe_lib.Recipe, output: str, runner: Runner | None = None
) -> dict:
  """Makes the data of a recipe under `output`, unless it is there already.

  Args:
    recipe: what to make.
    output: a directory; it gets this name only when it is complete. Work in
      progress lies in `output`.partial and is continued.
    runner: who does the work; None is one local process per core.

  Returns:
    The manifest.

  Raises:
    errors.UserError: if the input cannot be used, or `output` holds the data
      of another recipe or of other text.
  """
  recipe.check()
  output = os.path.abspath(output)
  partial = output + '.partial'
  try:
    with lock.exclusive(output + '.lock'):
      if not os.path.exists(output):
        if not os.path.exists(os.path.join(partial, manifest_lib.NAME)):
          _make(recipe, partial, runner or local_runner(0))
        shutil.rmtree(os.path.join(partial, 'work'), ignore_errors=True)
        os.rename(partial, output)
      manifest = manifest_lib.read(output)
  except OSError as error:
    raise errors.UserError(
      f'cannot write {output}: {error.strerror or error}; make room or use '
      'another directory, then run the same command again.'
    ) from error
  manifest_lib.check_recipe(manifest['recipe'], recipe.to_dict(), output)
  _check_unchanged(recipe, manifest, output)
  return manifest


def local_runner(count: int) -> Runner:
  """Runs jobs in `count` processes of this machine; 0 is one per core."""
  return functools.partial(_run_here, count or workers_lib.cores())


def _run_here(count: int, fn: Callable, jobs: Sequence[tuple]) -> Iterator:
  count = min(count, len(jobs))
  if count == 1:
    return (fn(*job) for job in jobs)
  return workers_lib.run(fn, jobs, count)


def _make(recipe: recipe_lib.Recipe, partial: str, runner: Runner):
  """Makes everything under `partial`, the manifest last."""
  work = os.path.join(partial, 'work')
  vocab_path = os.path.join(partial, 'vocab.txt')
  if recipe.vocab:
    _check_size(recipe, tokenizer.read_vocab(recipe.vocab))
  pieces = sources.plan(recipe.inputs, recipe.layout, recipe.field)
  jobs = _read_jobs(recipe, pieces, work)
  _open_partial(work, recipe, jobs)
  asked, recipe = recipe, _with_shards(recipe, pieces)
  found = _read(recipe, jobs, runner)
  todo = _shards(recipe, found, partial)
  _make_vocab(recipe, todo, vocab_path, runner)
  summaries = _run(
    runner, shards.make, [(s, recipe) for s in todo], 'making examples'
  )
  manifest = manifest_lib.sum_up(asked, found, summaries, vocab_path)
  examples = _examples(recipe, partial, manifest)
  files.write_text(
    os.path.join(partial, 'DATA_CARD.md'), card.text(manifest, examples)
  )
  files.write_json(os.path.join(partial, manifest_lib.NAME), manifest)


def _run(runner, fn, jobs, label) -> list:
  """Runs fn(x, recipe) over jobs, with progress in bytes of text."""
  results = []
  total = sum(x.size for x, _ in jobs)
  with progress.Progress(total, 'B', label) as bar:
    for (x, _), result in zip(jobs, runner(fn, jobs), strict=True):
      results.append(result)
      bar.update(x.size)
  return results


# The first stage.


def _with_shards(recipe, pieces: Sequence[sources.Piece]) -> recipe_lib.Recipe:
  """Chooses the number of shards by the size of the text, if it is not set."""
  if recipe.shards:
    return recipe
  needed = -(-sources.estimated_bytes(pieces) // _SHARD_BYTES)
  count = max(_MIN_SHARDS, 1 << max(needed - 1, 0).bit_length())
  return dataclasses.replace(recipe, shards=count)


def _read_jobs(recipe, pieces: Sequence[sources.Piece], work: str):
  if recipe.max_documents:  # the first ones, so one job reads them in order
    return [spill.Job(0, tuple(pieces), recipe.max_documents, work)]
  return [spill.Job(p.number, (p,), 0, work) for p in pieces]


def _open_partial(work: str, recipe, jobs: Sequence[spill.Job]):
  """Continues unfinished work on the same text, or starts anew."""
  path = os.path.join(work, 'started.json')
  begun = {'recipe': recipe.to_dict(), 'files': _modified(jobs)}
  if os.path.exists(path) and files.read_json(path) == begun:
    return
  shutil.rmtree(os.path.dirname(work), ignore_errors=True)
  os.makedirs(work)
  files.write_json(path, begun)


def _modified(jobs: Iterable[spill.Job]) -> dict:
  """Returns the bytes and the time of change of every input file."""
  ranges = {
    r.path: r.size for job in jobs for piece in job.pieces for r in piece.ranges
  }
  return {
    path: [size, os.stat(path).st_mtime_ns if os.path.exists(path) else 0]
    for path, size in ranges.items()
  }


def _read(recipe, jobs: Sequence[spill.Job], runner: Runner) -> dict:
  """Sorts all documents into buckets; returns what was found."""
  results = _run(runner, spill.read, [(j, recipe) for j in jobs], 'reading')
  inputs = [
    {'input': given, 'documents': 0, 'text_bytes': 0, 'files': []}
    for given in recipe.inputs
  ]
  counts: collections.Counter[str] = collections.Counter()
  for result in results:
    counts.update(result['counts'])
    for source, (documents, size) in result['sources'].items():
      inputs[int(source)]['documents'] += documents
      inputs[int(source)]['text_bytes'] += size
    for source, path, size, sha256 in result['files']:
      entry = {'path': path, 'bytes': size, 'sha256': sha256}
      inputs[source]['files'].append(entry)
  found = {
    'inputs': inputs,
    'counts': dict(counts),
    'segments': [spill.Segment(*s) for r in results for s in r['segments']],
  }
  _check_enough(recipe, found)
  return found


def _check_enough(recipe: recipe_lib.Recipe, found: dict):
  split = {'train': 0, 'heldout': 0}
  for segment in found['segments']:
    name = 'train' if segment.bucket < recipe.shards else 'heldout'
    split[name] += segment.documents
  total = sum(split.values())
  where = ', '.join(recipe.inputs)
  dropped = {k: v for k, v in found['counts'].items() if v}
  if not total:
    raise errors.UserError(
      f'{where} holds no text; give other files (counted: {dropped}).'
    )
  if total < 2 * shards.MIN_DOCUMENTS:
    raise errors.UserError(
      f'{where} holds {total} document(s) in layout {recipe.layout!r}; next '
      f'sentence prediction needs {2 * shards.MIN_DOCUMENTS} or more. Put '
      "blank lines between documents, or use layout 'files' for a document "
      'per file.'
    )
  for name, count in split.items():
    if count < shards.MIN_DOCUMENTS:
      raise errors.UserError(
        f'{count} of {total} documents fall to the {name} split with '
        f'heldout={recipe.heldout}; it needs {shards.MIN_DOCUMENTS} or more. '
        f'Set data.heldout near {min(0.5, 10 / total):.2g}.'
      )


def _check_unchanged(recipe, manifest: dict, directory: str):
  """Raises errors.UserError if input files changed since they were read."""
  paths = {}
  for given in filter(sources.is_file, recipe.inputs):
    with contextlib.suppress(errors.UserError):  # text may be gone by now
      paths.update({p: files.size(p) for p in files.expand(given)})
  manifest_lib.check_inputs(manifest['inputs'], paths, directory)


# The second stage.


def _shards(recipe, found: dict, partial: str) -> list[shards.Shard]:
  """Returns the shards; small corpora get fewer than the recipe asks for."""

  def of(split: str, first: int, count: int) -> list[shards.Shard]:
    buckets = collections.defaultdict(list)
    documents = 0
    for segment in found['segments']:
      if first <= segment.bucket < first + count:
        buckets[segment.bucket - first].append(segment)
        documents += segment.documents
    n = count
    while n % 2 == 0 and documents < _FEW_DOCUMENTS * n:
      n //= 2  # shard k takes over shard k + n: what is equal mod 2n is mod n
    return [
      shards.Shard(
        split,
        k,
        n,
        tuple(s for b in range(k, count, n) for s in buckets[b]),
        os.path.join(partial, 'vocab.txt'),
        partial,
        os.path.join(partial, 'work'),
      )
      for k in range(n)
    ]

  heldout = of('heldout', recipe.shards, recipe.heldout_shards)
  return heldout + of('train', 0, recipe.shards)


def _make_vocab(recipe, todo: Sequence[shards.Shard], path: str, runner):
  """Puts the vocabulary in place, given or trained on the training text."""
  if os.path.exists(path):
    return
  if recipe.vocab:
    words = tokenizer.read_vocab(recipe.vocab)
  else:
    jobs = [(s, recipe) for s in todo if s.split == 'train']
    paths = _run(runner, shards.count_words, jobs, 'counting words')
    counts = vocab.merge(map(shards.read_words, paths))
    words = vocab.train(counts, recipe.vocab_size)
  vocab.write(words, path)


def _check_size(recipe: recipe_lib.Recipe, words):
  if len(words) != recipe.vocab_size:
    raise errors.UserError(
      f'{recipe.vocab} has {len(words)} entries, but vocab_size is '
      f'{recipe.vocab_size}; set data.vocab_size={len(words)}.'
    )


def _examples(recipe, directory: str, manifest: dict) -> list[str]:
  """Returns a few rows of the first training shard as text."""
  path = os.path.join(directory, 'vocab.txt')
  words = tokenizer.Tokenizer.load(path, recipe.lowercase)
  length = recipe.lengths[0]
  first = next(s for s in manifest['shards'] if s['split'] == 'train')
  name = first['files'][str(length)]['name']
  reader = records.Reader([os.path.join(directory, name)], recipe.vocab_size)
  rows = np.arange(_EXAMPLES) * len(reader) // _EXAMPLES
  found = reader.rows(rows, length, words.cls_id, words.sep_id, recipe.pack)
  return [
    words.decode(ids[mask > 0].tolist())
    for ids, mask in zip(found['input_ids'], found['input_mask'], strict=True)
  ]


# The command.


def _define_flags():
  flags.DEFINE_list(
    'input',
    None,
    'Files, globs, folders, gs://…, tfds:NAME/CONFIG:SPLIT or python-docs. '
    'Text, WikiExtractor pages, MediaWiki dumps, .jsonl; also .gz .bz2 .xz '
    '.zst.',
  )
  flags.DEFINE_list(
    'weights', [], 'How often each input is used, relative to --passes: 1,0.5.'
  )
  flags.DEFINE_string('vocab', None, 'The vocabulary, one entry per line.')
  flags.DEFINE_string('output', None, 'The directory to make.')
  flags.DEFINE_list('max_seq_length', ['128'], 'Tokens of a row: 128,512.')
  flags.DEFINE_enum(
    'layout',
    'paragraphs',
    sources.LAYOUTS,
    'Of plain text. paragraphs, sentences: one per line, blank lines between '
    'documents. files: each file is a document.',
  )
  flags.DEFINE_string('language', 'en', 'For sentence splitting, ISO 639-1.')
  flags.DEFINE_string('field', 'text', 'The text in JSONL and TFDS.')
  flags.DEFINE_integer('min_chars', 50, 'Shorter documents are dropped.')
  flags.DEFINE_bool('cased', False, 'The vocabulary is cased.')
  flags.DEFINE_integer('passes', 5, 'Times each document is cut into pairs.')
  flags.DEFINE_float('short_seq_prob', 0.1, 'Share of shorter targets.')
  flags.DEFINE_integer('pack', 1, 'Pairs in a row, at most; 1 is BERT.')
  flags.DEFINE_float('heldout', 0.01, 'Share of documents for evaluation.')
  flags.DEFINE_integer(
    'shards', 0, 'Logical shards; 0 is one per 64 MB of text, at least 256.'
  )
  flags.DEFINE_integer('seed', 0, 'Of all random choices.')
  flags.DEFINE_enum('runner', 'local', ['local', 'beam'], 'Who does the work.')
  flags.DEFINE_integer('workers', 0, 'Local processes; 0 is one per core.')
  flags.DEFINE_string(
    'verify', None, 'Only check all files of this prepared folder.'
  )


def _numbers(name: str, kind: type) -> tuple:
  texts = getattr(flags.FLAGS, name)
  try:
    return tuple(kind(text) for text in texts)
  except ValueError:
    raise errors.UserError(
      f'--{name}={",".join(texts)} must be numbers, for example '
      f'{"128,512" if kind is int else "1,0.5"}.'
    ) from None


def _recipe() -> recipe_lib.Recipe:
  f = flags.FLAGS
  missing = [n for n in ('input', 'vocab', 'output') if not getattr(f, n)]
  if missing:
    raise errors.UserError(
      f'--{missing[0]} is missing; give --input, --vocab and --output, and '
      'see --help.'
    )
  return recipe_lib.Recipe(
    inputs=tuple(f.input),
    weights=_numbers('weights', float),
    layout=f.layout,
    language=f.language,
    field=f.field,
    min_chars=f.min_chars,
    max_documents=0,
    vocab=os.path.abspath(f.vocab),
    vocab_size=len(tokenizer.read_vocab(f.vocab)),
    lowercase=not f.cased,
    lengths=tuple(sorted(set(_numbers('max_seq_length', int)))),
    passes=f.passes,
    short_seq_prob=f.short_seq_prob,
    pack=f.pack,
    heldout=f.heldout,
    shards=f.shards,
    seed=f.seed,
  )


def main(argv):
  """Runs the command."""
  f = flags.FLAGS
  if f.verify:
    from bert_jax.data import loader

    loader.verify(f.verify)
    return
  if argv[1:] and f.runner != 'beam':
    raise errors.UserError(
      f'{argv[1]!r} is not a flag; quote globs, and see --help.'
    )
  runner = local_runner(f.workers)
  if f.runner == 'beam':
    runner = functools.partial(beam.run, options=argv[1:])
  manifest = prepare(_recipe(), f.output, runner)
  for name, count in manifest['cleaned'].items():
    print(f'{f.output}: {name}: {count:,}')
  for length, row in manifest['lengths'].items():
    print(
      f'{f.output}: length {length}: {row["rows"]:,} rows of '
      f'{row["pairs"]:,} pairs, {row["padding_share"]:.1%} padding, '
      f'{row["random_share"]:.1%} random'
    )


if __name__ == '__main__':
  _define_flags()
  command.run(main, takes_arguments=True)
