"""The two stages of `prepare`: documents to shards, shards to tokens and pairs.

The work is split into jobs, which write their results to files. A runner runs
the jobs, in processes of this machine or with Beam.
"""

import collections
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import (
  accents,
  document_spill,
  manifest_file,
  shards,
  store,
  summary,
  vocab_pieces,
)
from bert_jax.data.recipe import Recipe, added_path, weigh_by_size
from bert_jax.runtime import files, progress, storage
from bert_jax.tokenization import fast_tokenizer, tokenizer, unknown

_FEW_DOCUMENTS = 50  # shards that would hold fewer are merged
_FEW_BYTES = 256  # the same, per token of a row that documents share: 64 rows
_MIN_SHARDS = 256
_SHARD_BYTES = 64 << 20  # of text; a worker needs about three times the memory
_WORK = 2  # format of the files in work/

# (fn, jobs) -> results, in order; fn leaves its result in a file.
Runner = Callable[[Callable, Sequence[tuple]], Iterator]


@dataclasses.dataclass(frozen=True)
class Text:
  """The text that the first stage has distributed over shards."""

  recipe: Recipe  # with the number of shards and accents decided
  accents: str  # whether they are stripped, and why
  inputs: list[dict]  # documents, bytes and files of each, as in the manifest
  counts: dict[str, int]  # of what was cleaned and dropped
  parts: int  # documents or parts of long ones
  held: int  # of them, those to hold out
  shards: list[shards.Shard]


def make(recipe: Recipe, partial: str, runner: Runner):
  """Makes the data of a recipe in `partial`, or continues unfinished work.

  Intermediate files are in `work/`; the manifest is written last.
  """
  text = read(recipe, partial, runner)
  _check_enough(text)
  vocab_path = manifest_file.vocab_path(partial)
  if not storage.exists(vocab_path):
    given = _read_vocab(recipe)
    if recipe.add_words or not given.vocab:
      counts = count_words(text, 'train', runner)
      words = vocab_pieces.train(counts, recipe.vocab_size, given.vocab)
      given = dataclasses.replace(given, vocab=tuple(words))
    if recipe.added:
      files.write_json(added_path(vocab_path), recipe.added)
    vocab_path = os.path.join(partial, given.file_name)
    storage.write(vocab_path, given.to_bytes())
  held = next(shard for shard in text.shards if shard.split == 'heldout')
  words = files.load_json(shards.count_words(held, text.recipe))
  made_with = fast_tokenizer.load(vocab_path)
  if made_with.space:
    ids = np.concatenate(made_with.ids([*words]))
    unknowns, _ = unknown.examine(made_with, ids, [*words], vocab_path)
  else:
    unknowns = vocab_pieces.check(made_with.vocab, words).unknown_characters
  summaries = _run(
    runner, shards.make, text.shards, text.recipe, 'making examples'
  )
  names = [file['name'] for s in summaries for file in store.list_files(s)]
  storage.sync_files(partial, names)
  tokens = sum(
    np.frombuffer(storage.read(shard.in_work('counts')), np.int64)
    for shard in text.shards
    if shard.split == 'train'
  )
  strip = text.recipe.strip_accents
  asked = dataclasses.replace(recipe, strip_accents=strip)
  manifest = manifest_file.sum_up(asked, text, summaries, tokens, vocab_path)
  manifest['unknown_characters'] = round(unknowns, 8)
  card = os.path.join(partial, 'DATA_CARD.md')
  files.write_text(card, summary.make_card(manifest))
  manifest_file.write(partial, manifest)


def _run(runner, fn, todo, recipe, label) -> list:
  """Runs fn(x, recipe) over `todo`, with progress in bytes of text."""
  results = []
  total = sum(x.size for x in todo)
  unit = 'B' if total > 1 else 'input'  # python-docs counts as 1
  with progress.Progress(total, unit, label) as bar:
    made = runner(fn, [(x, recipe) for x in todo])
    for x, result in zip(todo, made, strict=True):
      results.append(result)
      bar.update(x.size)
  return results


# The first stage.


def read(recipe: Recipe, partial: str, runner: Runner) -> Text:
  """Distributes all documents over the shards; arguments are as in `make`."""
  given = _read_vocab(recipe)
  words = given.vocab
  for line in summary.warn_of_case(words, recipe.lowercase):
    print(line, flush=True)
  groups = sources.plan(recipe.inputs, recipe.layout, recipe.field)
  ranges = [part for group in groups for part in group]
  sizes = [0] * len(recipe.inputs)
  for part in ranges:
    sizes[part.source] += part.text_bytes
  work = os.path.join(partial, 'work')
  _open_partial(work, recipe, given.sha256, ranges)
  if not recipe.shards:
    recipe = dataclasses.replace(recipe, shards=_count_shards(sum(sizes)))
  recipe = weigh_by_size(recipe, sizes)
  if recipe.max_documents:
    # The first ones, so one job reads them in order; but not to their end.
    groups, sizes = [ranges], [1] * len(sizes)
  jobs = [
    document_spill.Job(k, tuple(group), tuple(sizes), work)
    for k, group in enumerate(groups)
  ]
  results = _run(runner, document_spill.read, jobs, recipe, 'reading')
  tallies = [
    sum(
      (np.array(x['tallies'][k]) for x in results if k in x['tallies']),
      np.zeros((2, document_spill.BINS + 1), int),
    )
    for k in map(str, range(len(sizes)))
  ]
  inputs, counts = _sum_up(recipe, results, tallies)
  limits, held_bytes, held = [], 0, 0
  for size, tally in zip(sizes, tallies, strict=True):
    bound = document_spill.find_bound(size, recipe.heldout)
    end, chosen, count = document_spill.choose(recipe.heldout, tally)
    limits.append(bound * end / document_spill.BINS)
    held_bytes, held = held_bytes + chosen, held + count
  listed = (x for result in results for x in result['segments'])
  segments = [document_spill.Segment(*x) for x in listed]
  todo = _shards(recipe, segments, tuple(limits), held_bytes, partial)
  # A document's hash chooses its shard, so whole shards are a fair sample,
  # which does not depend on how the input was split into jobs.
  samples = (
    (
      x
      for t in document_spill.read_texts(s.segments)
      for x in t.document.paragraphs
    )
    for s in todo
    if s.split == 'train'
  )
  how = recipe.strip_accents, recipe.lowercase
  strip, reason = accents.decide(*how, words, samples)
  recipe = dataclasses.replace(recipe, strip_accents=strip)
  decided = f'{"stripped" if strip else "kept"}: {reason}'
  if given.space:
    decided = f'left to {given.file_name}'
  parts = sum(segment.documents for segment in segments)
  return Text(recipe, decided, inputs, counts, parts, held, todo)


def _read_vocab(recipe: Recipe) -> tokenizer.Tokenizer:
  """Returns the vocabulary that a recipe gives; an empty one if it is to be trained."""
  if not recipe.vocab:
    return tokenizer.Tokenizer(())
  how = recipe.lowercase, recipe.strip_accents
  words = fast_tokenizer.load(recipe.vocab, *how)
  if words.space and recipe.add_words:
    raise errors.UserError(
      f'data.add_words={recipe.add_words} adds pieces of WordPiece, but '
      f'{recipe.vocab} is a tokenizer of another kind; set it to 0.'
    )
  if words.size + recipe.add_words != recipe.vocab_size:
    raise errors.UserError(
      f'{recipe.vocab} has {words.size} entries, but vocab_size is '
      f'{recipe.vocab_size}; set data.vocab_size={words.size}.'
    )
  return words


def _count_shards(size: int) -> int:
  """Returns how many shards this many bytes of text make, a power of two."""
  needed = -(-size // _SHARD_BYTES)
  return max(_MIN_SHARDS, 1 << max(needed - 1, 0).bit_length())


def _open_partial(
  work: str, recipe, vocab_sha256: str, ranges: Sequence[sources.Range]
):
  """Continues unfinished work on the same text and words, or starts anew."""
  path = os.path.join(work, 'started.json')
  sizes = {x.path: x.whole for x in ranges if sources.is_file(x.path)}
  begun = {
    'format': [manifest_file.FORMAT, _WORK],
    'recipe': recipe.to_dict(),
    'vocab_sha256': vocab_sha256,
    'files': {x: [size, storage.get_time(x)] for x, size in sizes.items()},
  }
  if storage.exists(path) and files.load_json(path) == begun:
    return
  storage.delete(os.path.dirname(work))
  storage.make_folder(work)
  files.write_json(path, begun)


def _sum_up(recipe, results: Sequence[dict], tallies) -> tuple[list, dict]:
  """Returns the `inputs` and `counts` of a `Text`; raises if it has none."""
  weights = recipe.weights or (1.0,) * len(recipe.inputs)
  documents, counts, invalid = (
    sum((collections.Counter(r[name]) for r in results), collections.Counter())
    for name in ('documents', 'counts', 'invalid')
  )
  if not documents:
    raise errors.UserError(
      f'{", ".join(recipe.inputs)} holds no text (counted {dict(counts)}); give '
      'other files.'
    )
  inputs = [
    {
      'input': given,
      'weight': weights[k],
      'documents': documents[str(k)],
      'text_bytes': int(tallies[k][0].sum()),
      'files': [],
    }
    for k, given in enumerate(recipe.inputs)
  ]
  for source, path, size, sha256 in (x for r in results for x in r['files']):
    entry = {'path': path, 'bytes': size, 'sha256': sha256}
    if invalid[path]:
      entry['invalid_utf8'] = invalid[path]
    inputs[source]['files'].append(entry)
  return inputs, dict(counts)


def _shards(
  recipe, segments, limits: tuple[float, ...], held_bytes: int, partial: str
) -> list[shards.Shard]:
  """Returns the shards; small corpora get fewer than the recipe asks for."""
  documents = sum(segment.documents for segment in segments)
  size = sum(segment.size for segment in segments)
  few = _FEW_BYTES * max(recipe.lengths) * (recipe.rows == 'full_sentences')
  n = recipe.shards
  while n % 2 == 0 and (documents < _FEW_DOCUMENTS * n or size < few * n):
    n //= 2  # shard k + n is merged into shard k: hash mod 2n becomes mod n
  held = min(-(-held_bytes // _SHARD_BYTES), n)
  todo = []
  for split, count in ('heldout', held), ('train', n):
    buckets = collections.defaultdict(list)
    for segment in segments:
      if count and (split == 'train' or segment.bucket >= recipe.shards):
        buckets[segment.bucket % recipe.shards % count].append(segment)
    todo += [
      shards.Shard(split, k, count, tuple(buckets[k]), limits, partial)
      for k in range(count)
    ]
  return todo


# The second stage.


def count_words(
  text: Text, split: str, runner: Runner
) -> collections.Counter[str]:
  """Counts the words of a split, 'train' or 'heldout'."""
  todo = [shard for shard in text.shards if shard.split == split]
  paths = _run(runner, shards.count_words, todo, text.recipe, 'counting words')
  return vocab_pieces.count_words(map(files.load_json, paths))


def _check_enough(text: Text):
  if min(text.held, text.parts - text.held) < shards.MIN_DOCUMENTS:
    raise errors.UserError(
      f'{", ".join(text.recipe.inputs)} holds '
      f'{sum(given["documents"] for given in text.inputs)} document(s) in '
      f'layout {text.recipe.layout!r}; training and evaluation need '
      f'{shards.MIN_DOCUMENTS} different ones each, or a long one. Give more text, '
      "put blank lines between documents, or use layout 'files' for a document per "
      'file.'
    )
