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
  data_card,
  document_spill,
  heldout,
  manifest_file,
  shards,
  store,
  vocab_pieces,
)
from bert_jax.data.recipe import Recipe, weigh_by_size
from bert_jax.runtime import files, progress, storage
from bert_jax.tokenization import tokenizer

_FEW_DOCUMENTS = 50  # shards that would hold fewer are merged
_MIN_SHARDS = 256
_SHARD_BYTES = 64 << 20  # of text; a worker needs about three times the memory

# (fn, jobs) -> results, in order; fn leaves its result in a file.
Runner = Callable[[Callable, Sequence[tuple]], Iterator]


@dataclasses.dataclass(frozen=True)
class Text:
  """The text that the first stage has distributed over shards."""

  recipe: Recipe  # with the number of shards and accents decided
  accents: accents.Decision
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
    words = _read_vocab(recipe)
    if not words:
      [counts] = count_words(text, ['train'], runner)
      words = vocab_pieces.train(counts, recipe.vocab_size)
    tokenizer.write_vocab(words, vocab_path)
  held = next(shard for shard in text.shards if shard.split == 'heldout')
  words = files.load_json(shards.count_words(held, text.recipe))
  fit = vocab_pieces.check(tokenizer.read_vocab(vocab_path), words)
  summaries = _run(
    runner, shards.make, text.shards, text.recipe, 'making examples'
  )
  names = [file['name'] for s in summaries for file in store.list_files(s)]
  storage.sync_files(partial, names)
  asked = dataclasses.replace(recipe, strip_accents=text.accents.strip)
  manifest = manifest_file.sum_up(
    asked, str(text.accents), text.inputs, text.counts, summaries, vocab_path
  )
  manifest['unknown_characters'] = round(fit.unknown_characters, 8)
  card = os.path.join(partial, 'DATA_CARD.md')
  files.write_text(card, data_card.make_card(manifest))
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
  words = _read_vocab(recipe)
  for line in manifest_file.warn_of_case(words, recipe.lowercase):
    print(line, flush=True)
  pieces = sources.plan(recipe.inputs, recipe.layout, recipe.field)
  work = os.path.join(partial, 'work')
  jobs = _read_jobs(recipe, pieces, work)
  _open_partial(work, recipe, words, pieces)
  recipe = _with_shards(recipe, pieces)
  recipe = weigh_by_size(recipe, _estimate(recipe, pieces))
  results = _run(runner, document_spill.read, jobs, recipe, 'reading')
  inputs, counts = _sum_up(recipe, results)
  held_out = [
    _hold_out(recipe, bound, results, k)
    for k, bound in enumerate(jobs[0].bounds)
  ]
  listed = (x for result in results for x in result['segments'])
  segments = [document_spill.Segment(*x) for x in listed]
  todo = _shards(recipe, segments, held_out, partial)
  decided = _decide_accents(recipe, words, todo)
  recipe = dataclasses.replace(recipe, strip_accents=decided.strip)
  parts = sum(segment.documents for segment in segments)
  held = sum(count for _, _, count in held_out)
  return Text(recipe, decided, inputs, counts, parts, held, todo)


def _read_vocab(recipe: Recipe) -> Sequence[str]:
  """Returns the vocabulary that a recipe gives; () if it is to be trained."""
  if not recipe.vocab:
    return ()
  words = tokenizer.read_vocab(recipe.vocab)
  if len(words) != recipe.vocab_size:
    raise errors.UserError(
      f'{recipe.vocab} has {len(words)} entries, but vocab_size is '
      f'{recipe.vocab_size}; set data.vocab_size={len(words)}.'
    )
  return words


def _with_shards(recipe, pieces: Sequence[sources.Piece]) -> Recipe:
  """Sets the number of shards by the size of the text, if it is not given."""
  if recipe.shards:
    return recipe
  needed = -(-sources.estimate_bytes(pieces) // _SHARD_BYTES)
  count = max(_MIN_SHARDS, 1 << max(needed - 1, 0).bit_length())
  return dataclasses.replace(recipe, shards=count)


def _estimate(recipe, pieces: Sequence[sources.Piece]) -> list[int]:
  """Returns about how many bytes of text each input has."""
  return [
    sources.estimate_bytes([piece for piece in pieces if piece.source == k])
    for k in range(len(recipe.inputs))
  ]


def _read_jobs(recipe, pieces: Sequence[sources.Piece], work: str):
  sizes = _estimate(recipe, pieces)
  if recipe.max_documents:
    sizes = [1] * len(sizes)  # unknown, since they are not read to their end
  part_sizes = tuple(map(heldout.choose_part_size, sizes))
  bounds = tuple(heldout.find_bound(x, recipe.heldout) for x in sizes)
  jobs = [(piece,) for piece in pieces]
  if recipe.max_documents:  # the first ones, so one job reads them in order
    jobs = [tuple(pieces)]
  return [
    document_spill.Job(k, x, part_sizes, bounds, work)
    for k, x in enumerate(jobs)
  ]


def _open_partial(
  work: str, recipe, words: Sequence[str], pieces: Sequence[sources.Piece]
):
  """Continues unfinished work on the same text and `words`, or starts anew."""
  path = os.path.join(work, 'started.json')
  sizes = sources.list_files(pieces)
  begun = {
    'format': manifest_file.FORMAT,
    'recipe': recipe.to_dict(),
    'vocab_sha256': tokenizer.hash_vocab(words),
    'files': {x: [size, storage.get_time(x)] for x, size in sizes.items()},
  }
  if storage.exists(path) and files.load_json(path) == begun:
    return
  storage.delete(os.path.dirname(work))
  storage.make_folder(work)
  files.write_json(path, begun)


def _sum_up(recipe, results: Sequence[dict]) -> tuple[list[dict], dict]:
  """Returns the `inputs` and `counts` of a `Text`; raises if it has none."""
  weights = recipe.weights or (1.0,) * len(recipe.inputs)
  inputs = [
    {'input': x, 'weight': weight, 'documents': 0, 'text_bytes': 0, 'files': []}
    for x, weight in zip(recipe.inputs, weights, strict=True)
  ]
  counts: collections.Counter[str] = collections.Counter()
  invalid: collections.Counter[str] = collections.Counter()
  for result in results:
    counts.update(result['counts'])
    invalid.update(result['invalid'])
    for source, (documents, _, size) in result['sources'].items():
      inputs[int(source)]['documents'] += documents
      inputs[int(source)]['text_bytes'] += size
    for source, path, size, sha256 in result['files']:
      entry = {'path': path, 'bytes': size, 'sha256': sha256}
      inputs[source]['files'].append(entry)
  for entry in (file for given in inputs for file in given['files']):
    if invalid[entry['path']]:
      entry['invalid_utf8'] = invalid[entry['path']]
  if not any(given['documents'] for given in inputs):
    raise errors.UserError(
      f'{", ".join(recipe.inputs)} holds no text (counted {dict(+counts)}); give '
      'other files.'
    )
  return inputs, dict(counts)


def _hold_out(recipe, bound: float, results, source: int):
  """Returns the draw below which parts are held out; their bytes and number."""
  totals = [r['sources'].get(str(source), (0, 0, 0)) for r in results]
  _, parts, size = map(sum, zip(*totals, strict=True))
  bins: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0])
  for result in results:
    for number, tally in result['bins'].get(str(source), {}).items():
      bins[int(number)] = np.add(bins[int(number)], tally).tolist()
  end, size, parts = heldout.choose(recipe.heldout, size, parts, bins)
  return bound * end / heldout.BINS, size, parts


def _shards(recipe, segments, held_out, partial: str) -> list[shards.Shard]:
  """Returns the shards; small corpora get fewer than the recipe asks for."""
  documents = sum(segment.documents for segment in segments)
  n = recipe.shards
  while n % 2 == 0 and documents < _FEW_DOCUMENTS * n:
    n //= 2  # shard k + n is merged into shard k: hash mod 2n becomes mod n
  limits, sizes, _ = zip(*held_out, strict=True)
  held = min(-(-sum(sizes) // _SHARD_BYTES), n)
  vocab_path = manifest_file.vocab_path(partial)
  rest = limits, vocab_path, partial, os.path.join(partial, 'work')
  todo = []
  for split, count in ('heldout', held), ('train', n):
    buckets = collections.defaultdict(list)
    for segment in segments:
      if count and (split == 'train' or segment.bucket >= recipe.shards):
        buckets[segment.bucket % recipe.shards % count].append(segment)
    todo += [
      shards.Shard(split, k, count, tuple(buckets[k]), *rest)
      for k in range(count)
    ]
  return todo


def _decide_accents(
  recipe, words: Sequence[str], todo: Sequence[shards.Shard]
) -> accents.Decision:
  """Decides whether accents are stripped, if the recipe leaves it open."""
  decided = accents.decide_without_text(
    recipe.strip_accents, recipe.lowercase, words
  )
  if decided:
    return decided
  # A document's hash chooses its shard, so whole shards are a fair sample,
  # which does not depend on how the input was split into jobs.
  seen: collections.Counter[str] = collections.Counter()
  for shard in (s for s in todo if s.split == 'train'):
    for text in document_spill.read_texts(shard.segments):
      for paragraph in text.document.paragraphs:
        accents.count_scripts(paragraph, seen)
    if seen['characters'] >= accents.SAMPLE:
      break
  return accents.judge_text(recipe.language, seen)


# The second stage.


def count_words(
  text: Text, splits: Sequence[str], runner: Runner
) -> list[collections.Counter]:
  """Counts the words of each split, 'train' or 'heldout'."""
  todo = [shard for shard in text.shards if shard.split in splits]
  paths = _run(runner, shards.count_words, todo, text.recipe, 'counting words')
  of = {split: [] for split in splits}
  for shard, path in zip(todo, paths, strict=True):
    of[shard.split].append(path)
  return [vocab_pieces.count_words(map(files.load_json, of[x])) for x in splits]


def _check_enough(text: Text):
  recipe = text.recipe
  if min(text.held, text.parts - text.held) < shards.MIN_DOCUMENTS:
    advice = (
      "Put blank lines between documents, or use layout 'files' for a document "
      'per file.'
    )
    if recipe.layout == 'files':
      advice = (
        'Give more files, or a layout with blank lines between documents.'
      )
    raise errors.UserError(
      f'{", ".join(recipe.inputs)} holds '
      f'{sum(given["documents"] for given in text.inputs)} document(s) in '
      f'layout {recipe.layout!r}; training and evaluation need '
      f'{shards.MIN_DOCUMENTS} different ones each, or a long one. {advice}'
    )
