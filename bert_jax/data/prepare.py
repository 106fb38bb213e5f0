"""Prepares training data: vocabulary, sentence pairs, records, manifest.

Documents are read, cleaned and distributed over logical shards by the hash of
their text; then each shard is written as records. The output is the same, byte
for byte, for any number of workers and any runner. After an interruption, run
the same command again to continue.

  python -m bert_jax.data.prepare --input='books/*.txt' --layout=files \\
    --vocab=vocab.txt --output=/data/books --max_seq_length=128,512

With --runner=beam, Beam's own options come after two dashes:

  python -m bert_jax.data.prepare ... --runner=beam -- \\
    --runner=FlinkRunner --flink_master=HOST:8081
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from bert_jax import errors
from bert_jax.corpus import sources, text_files
from bert_jax.data import beam, stages, vocab
from bert_jax.data import manifest as manifest_lib
from bert_jax.data import recipe as recipe_lib
from bert_jax.runtime import cli, disk, lock, storage
from bert_jax.runtime import workers as workers_lib
from bert_jax.tokenization import tokenizer

_CAPITALS = 0.05  # maximum share of an uncased vocabulary's pieces


def prepare(
  recipe: recipe_lib.Recipe, output: str, runner: stages.Runner | None = None
) -> dict:
  """Makes the data of a recipe in `output`, unless it exists already.

  Args:
    recipe: what to make.
    output: a directory, local or in a bucket, that is created when the data is
      complete. Work in progress is kept in `output`.partial and continued.
    runner: runs the jobs; None uses one local process per core.

  Returns:
    The manifest.

  Raises:
    errors.UserError: if the input cannot be used, or `output` holds the data
      of another recipe, vocabulary or text.
  """
  output = storage.resolve(output)
  advice = (
    'make room or use another directory, then run the same command again.'
  )
  with errors.explaining(f'cannot write {output}', advice):
    with lock.exclusive(output + '.lock'):
      if not _is_complete(output):
        _make(recipe, output, runner or local_runner(workers_lib.ONE_PER_CORE))
      manifest = manifest_lib.read(output)
  manifest_lib.check_recipe(manifest['recipe'], recipe.to_dict(), output)
  _check_unchanged(recipe, manifest, output)
  return manifest


def _is_complete(directory: str) -> bool:
  return storage.exists(os.path.join(directory, manifest_lib.NAME))


def _make(recipe, output: str, runner: stages.Runner):
  partial = output + '.partial'
  if not _is_complete(partial):
    if storage.exists(output):
      raise errors.UserError(
        f'{output} exists and is not prepared data; name another folder.'
      )
    stages.make(recipe, partial, runner)
  storage.delete(os.path.join(partial, 'work'))
  disk.remove_unfinished(partial)
  storage.move_folder(partial, output, manifest_lib.NAME)


def local_runner(count: int) -> stages.Runner:
  """Returns a runner that runs jobs in `count` processes of this machine.

  Args:
    count: -1 is one per core, 0 is this process alone.
  """
  return functools.partial(_run_here, workers_lib.resolve(count))


def _run_here(count: int, fn: Callable, jobs: Sequence[tuple]) -> Iterator:
  count = min(count, len(jobs))
  if count <= 1:  # one other process would not save time
    return (fn(*job) for job in jobs)
  return workers_lib.run(fn, jobs, count)


def _check_unchanged(recipe, manifest: dict, directory: str):
  """Raises errors.UserError if vocabulary or input are not as they were.

  Either may be deleted once the data is complete. Input is known by its size,
  since reading it would take long.
  """
  if recipe.vocab and storage.exists(recipe.vocab):
    words = tokenizer.read_vocab(recipe.vocab)
    if vocab.compute_sha256(words) != manifest['vocab_sha256']:
      raise errors.UserError(
        f'the vocabulary {recipe.vocab} has changed since {directory} was '
        'prepared; use another directory, or put the old vocabulary back.'
      )
  paths = {}
  for given in filter(sources.is_file, recipe.inputs):
    with contextlib.suppress(errors.UserError):  # it may be deleted
      paths.update(text_files.list_sizes(given))
  manifest_lib.check_inputs(manifest['inputs'], paths, directory)


# The command. It imports configs late, since worker processes import this module.


_SAME_NAMES = (
  *('input', 'weights', 'vocab', 'layout', 'language', 'field', 'min_chars'),
  *('strip_accents', 'passes', 'short_seq_prob', 'pack', 'negatives'),
  *('heldout', 'shards', 'workers'),
)
_FIELDS = {
  **{name: f'data.{name}' for name in _SAME_NAMES},
  'max_seq_length': 'phases.seq_length',
  'seed': 'seed',
}


def _define_flags():
  from bert_jax.config import command_flags

  command_flags.define(_FIELDS, input=None, vocab=None, max_seq_length=['128'])
  flags.DEFINE_string(
    'output', None, 'The directory to create, local or gs://.'
  )
  flags.DEFINE_bool('cased', False, 'The vocabulary is cased.')
  flags.DEFINE_enum('runner', 'local', ['local', 'beam'], 'What runs the jobs.')
  flags.DEFINE_string(
    'verify', None, 'Only check all files of this prepared folder.'
  )


def _recipe() -> recipe_lib.Recipe:
  from bert_jax import config as config_lib
  from bert_jax.config import command_flags

  f = flags.FLAGS
  missing = [n for n in ('input', 'vocab', 'output') if not getattr(f, n)]
  if missing:
    raise errors.UserError(
      f'--{missing[0]} is missing; give --input, --vocab and --output, and '
      'see --help.'
    )
  words = tokenizer.read_vocab(f.vocab)
  _warn_of_case(words, f.vocab, f.cased)
  c = config_lib.declare_fields()
  command_flags.update(c, _FIELDS)
  c.data.vocab = storage.resolve(f.vocab)
  c.data.vocab_size = len(words)
  c.data.lowercase = not f.cased
  return recipe_lib.make_recipe(c)


def _warn_of_case(words: Sequence[str], path: str, cased: bool):
  """Warns if the vocabulary's case does not seem to match --cased."""
  ordinary = [w for w in words if not w.startswith('[')]
  capital = sum(w != w.lower() for w in ordinary) / len(words)
  if cased and not capital:
    said = 'has no capital letters: without --cased text is lower-cased for it'
  elif not cased and capital > _CAPITALS:
    said = f'has capital letters in {capital:.0%} of its pieces: give --cased'
  else:
    return
  print(f'warning: {path} {said}', file=sys.stderr, flush=True)


def _check_verify_stands_alone(f):
  module = f.find_module_defining_flag('verify')
  others = [
    flag.name
    for flag in f.get_flags_for_module(module)
    if flag.present and flag.name != 'verify'
  ]
  if others:
    raise errors.UserError(
      f'--verify only checks what is there, so --{others[0]} does nothing '
      'beside it; leave one of them out.'
    )


def main(argv: list[str]):
  """Runs the command."""
  f = flags.FLAGS
  if f.verify:
    _check_verify_stands_alone(f)
    from bert_jax.data import dataset

    size = dataset.verify(f.verify)
    print(f'{f.verify}: all {size:,} bytes of records are as they were made')
    return
  if argv[1:] and f.runner != 'beam':
    raise errors.UserError(
      f'{argv[1]!r} is not a flag; quote globs, and see --help.'
    )
  if f.runner == 'beam' and f['workers'].present:
    raise errors.UserError(
      '--workers counts local processes; with --runner=beam give the options '
      'of Beam after two dashes, such as -- --direct_num_workers=4.'
    )
  recipe = _recipe()
  runner = local_runner(f.workers)
  if f.runner == 'beam':
    runner = functools.partial(beam.run, options=argv[1:])
  manifest = prepare(recipe, f.output, runner)
  print(f'{f.output}: accents are {manifest_lib.describe_accents(manifest)}')
  for name, count in manifest['cleaned'].items():
    print(f'{f.output}: {name}: {count:,}')
  for line in manifest_lib.describe_inputs(manifest):
    print(f'{f.output}: {line}')
  print(
    f'{f.output}: {manifest["tokens"]:,} tokens, '
    f'{manifest["unknown_share"]:.2%} unknown'
  )
  for length, row in manifest['lengths'].items():
    print(
      f'{f.output}: length {length}: {row["rows"]:,} rows of '
      f'{row["pairs"]:,} pairs, {row["padding_share"]:.1%} padding, '
      f'{row["random_share"]:.1%} random'
    )
  for line in manifest_lib.list_warnings(manifest):
    print(line)


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True)
