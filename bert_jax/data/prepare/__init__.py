"""Prepares training data, unless it exists already; the command is `__main__`.

Worker processes start sooner because they do not import the command.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence

from bert_jax import errors
from bert_jax.corpus import sources, text_files
from bert_jax.data import manifest_file, stages
from bert_jax.data.recipe import Recipe
from bert_jax.runtime import hub, lock, storage, workers
from bert_jax.tokenization import tokenizer


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
  asked, made = recipe.to_dict(), manifest['recipe']
  if recipe.vocab and storage.exists(recipe.vocab):
    asked['vocab'] = made['vocab']  # its words are compared below
  manifest_file.check_recipe(made, asked, output)
  _check_unchanged(recipe, manifest, output)
  return manifest


def _is_complete(directory: str) -> bool:
  return storage.exists(os.path.join(directory, manifest_file.NAME))


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


def _check_unchanged(recipe, manifest: dict, directory: str):
  """Raises errors.UserError if vocabulary or size of the input have changed.

  They may be deleted once the data is complete.
  """
  if recipe.vocab and storage.exists(recipe.vocab):
    words = tokenizer.read_vocab(recipe.vocab)
    if tokenizer.hash_vocab(words) != manifest['vocab_sha256']:
      raise errors.UserError(
        f'{recipe.vocab} is not the vocabulary that {directory} was prepared '
        f'with, {manifest_file.vocab_path(directory)}; use another directory, or '
        'give that one.'
      )
  # A commit of the hub stays as it is, even if there is no network now.
  there = (f for given in manifest['inputs'] for f in given['files'])
  paths = {f['path']: f['bytes'] for f in there if hub.is_pinned(f['path'])}
  for given in filter(sources.is_file, recipe.inputs):
    if given.startswith(hub.DATASET):
      continue
    with contextlib.suppress(errors.UserError):  # it may be deleted
      paths.update(text_files.list_sizes(given))
  manifest_file.check_inputs(manifest['inputs'], paths, directory)
