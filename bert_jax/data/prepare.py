"""Prepares training data: vocabulary, tokens, pairs or parts, manifest.

Documents are read, cleaned and distributed over logical shards by the hash of
their text; then each shard is written as tokens and rows. The output is the same, byte
for byte, for any number of workers and any runner. After an interruption, run
the same command again to continue.

  python -m bert_jax.data.prepare --input='books/*.txt' --layout=files \\
    --vocab=vocab.txt --output=/data/books --max_seq_length=128,512

With --runner=beam, Beam's own options come after two dashes:

  python -m bert_jax.data.prepare ... --runner=beam -- \\
    --runner=FlinkRunner --flink_master=HOST:8081
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from bert_jax import errors
from bert_jax.corpus import sources, text_files
from bert_jax.data import manifest_file, stages, summary
from bert_jax.data.recipe import Recipe, make_recipe
from bert_jax.runtime import cli, hub, lock, storage, workers
from bert_jax.tokenization.fast_tokenizer import load

_SAME_NAMES = (
  'input weights size_power vocab layout language field min_chars strip_accents passes '
  'rows short_seq_prob pack negatives heldout shards workers'
)
_FIELDS = {
  **{name: f'data.{name}' for name in _SAME_NAMES.split()},
  'max_seq_length': 'phases.seq_length',
  'seed': 'seed',
}


def prepare(recipe: Recipe, output: str, runner: stages.Runner) -> dict:
  """Makes the data of a recipe, unless it exists; returns the manifest.

  Args:
    output: a directory, local or in a bucket, that is created when the data is
      complete. Work in progress is kept in `output`.partial and continued.
  """
  output = storage.resolve(output)
  advice = (
    'make room or use another directory, then run the same command again.'
  )
  with (
    errors.explaining(f'cannot write {output}', advice),
    lock.exclusive(output + '.lock'),
  ):
    if not _is_complete(output):
      partial = output + '.partial'
      if not _is_complete(partial):
        if storage.exists(output):
          raise errors.UserError(
            f'{output} exists and is not prepared data; name another folder.'
          )
        stages.make(recipe, partial, runner)
      storage.delete(os.path.join(partial, 'work'))
      storage.remove_unfinished(partial)
      storage.move_folder(partial, output, manifest_file.NAME)
    manifest = manifest_file.read(output)
  _check_unchanged(recipe, manifest, output)
  return manifest


def _is_complete(directory: str) -> bool:
  return storage.exists(os.path.join(directory, manifest_file.NAME))


def _check_unchanged(recipe: Recipe, manifest: dict, directory: str):
  """Raises errors.UserError if recipe, vocabulary or sizes of input have changed.

  Vocabulary and input may be deleted once the data is complete.
  """
  listed = (file for given in manifest['inputs'] for file in given['files'])
  sizes = {file['path']: file['bytes'] for file in listed}
  # A commit of the hub stays as it is, even if there is no network now.
  now = {path: size for path, size in sizes.items() if hub.is_pinned(path)}
  for given in filter(sources.is_file, recipe.inputs):
    if not given.startswith(hub.DATASET):
      with contextlib.suppress(errors.UserError):  # it may be deleted
        now.update(text_files.list_sizes(given))
  asked, made = recipe.to_dict(), manifest['recipe']
  if asked['strip_accents'] is None:  # keep the earlier decision
    asked['strip_accents'] = made['strip_accents']
  if recipe.vocab and storage.exists(recipe.vocab):  # words count, not paths
    words = load(recipe.vocab)
    made_with = load(manifest_file.vocab_path(directory))
    same = made_with.vocab[: words.size]  # what follows are added words
    is_same = dataclasses.replace(made_with, vocab=same) == words
    asked['vocab'] = (
      made['vocab'] if is_same else f'{recipe.vocab}, other words'
    )
  changes = errors.find_changes(
    {**made, 'bytes': sizes}, {**asked, 'bytes': now or sizes}
  )
  if changes:
    raise errors.UserError(
      f'{directory} was prepared otherwise ({errors.listing(changes, most=3)}); '
      'use another directory, or the old values and files. Training on what is '
      f'prepared needs no text: bert_jax.main --config.data.dir={directory}'
    )


def local_runner(count: int) -> stages.Runner:
  """Returns a runner with `count` processes; -1 is one per core, 0 is none."""
  count = workers.resolve(count)

  @functools.cache  # kept, so that the next stage starts sooner
  def make_pool():
    return workers.make_pool(count)

  def run(fn: Callable, jobs: Sequence[tuple]) -> Iterator:
    if min(count, len(jobs)) <= 1:  # one worker would not save time
      return (fn(*job) for job in jobs)
    return workers.run_in(make_pool(), fn, jobs)

  return run


def run_on_beam(
  fn: Callable, jobs: Sequence[tuple], options: Sequence[str]
) -> Iterator:
  """Yields fn(*job) for each job in order, after a Beam pipeline has run them.

  Jobs write their results to files, which a second call returns, so the pipeline
  only distributes the jobs; all workers must share a file system, or the output
  is in a bucket.
  """
  advice = "pip install 'bert_jax[beam]'."
  with errors.explaining(
    '--runner=beam needs Apache Beam', advice, ImportError
  ):
    import apache_beam as beam
    from apache_beam.options import pipeline_options
  parsed = pipeline_options.PipelineOptions(list(options))

  def call(job):  # what it returns is in a file, too
    fn(*job)

  with beam.Pipeline(options=parsed) as pipeline:
    # Without Reshuffle, all jobs might be fused into a bundle, for one worker.
    _ = pipeline | beam.Create(jobs) | beam.Reshuffle() | beam.Map(call)
  for job in jobs:
    yield fn(*job)


# Worker processes import this module, but do not need the config.
def _define_flags():
  from bert_jax.config import arguments

  arguments.define_flags(
    _FIELDS, input=None, vocab=None, max_seq_length=['128']
  )
  flags.DEFINE_string(
    'output', None, 'The directory to create, local or gs://.'
  )
  flags.DEFINE_bool('cased', False, 'The vocabulary is cased.')
  flags.DEFINE_enum('runner', 'local', ['local', 'beam'], 'What runs the jobs.')


def main(argv: list[str]):
  """Runs the command."""
  from bert_jax.config import arguments, declare_fields

  f = flags.FLAGS
  if argv[1:] and f.runner != 'beam':
    raise errors.UserError(
      f'{argv[1]!r} is not a flag; quote globs, and see --help.'
    )
  if f.runner == 'beam' and f['workers'].present:
    raise errors.UserError(
      '--workers counts local processes; with --runner=beam give the options '
      'of Beam after two dashes, such as -- --direct_num_workers=4.'
    )
  if not (f.input and f.vocab and f.output):
    raise errors.UserError('give --input, --vocab and --output; see --help.')
  c = declare_fields()
  arguments.update_by_flags(c, _FIELDS)
  c.data.vocab = storage.resolve(f.vocab)
  c.data.vocab_size = load(f.vocab).size
  c.data.lowercase = not f.cased
  runner = local_runner(f.workers)
  if f.runner == 'beam':
    runner = functools.partial(run_on_beam, options=argv[1:])
  manifest = prepare(make_recipe(c), f.output, runner)
  for line in summary.describe(manifest):
    print(f'{f.output}: {line}')
  words = manifest_file.load_tokenizer(f.output).vocab
  for line in summary.list_warnings(manifest, words):
    print(line)


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True)
