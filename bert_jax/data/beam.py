"""The jobs of `prepare` on Apache Beam, on whatever engine it drives.

Jobs leave their results in files, so the pipeline only says which jobs to do;
all workers must see the same file system.
"""

from collections.abc import Callable, Iterator, Sequence

from bert_jax import errors


def run(
  fn: Callable, jobs: Sequence[tuple], options: Sequence[str]
) -> Iterator:
  """Yields fn(*job) for each job in order, made by a Beam pipeline.

  Args:
    fn: a function of a module; called again it returns what it left.
    jobs: its arguments.
    options: of Beam, for example --runner=DirectRunner.

  Raises:
    errors.UserError: if Beam is not installed, or refuses the options.
  """
  try:
    import apache_beam as beam
    from apache_beam.options import pipeline_options
  except ImportError as error:
    raise errors.UserError(
      f'--runner=beam needs Apache Beam ({error}); pip install '
      "'bert_jax[beam]'."
    ) from error
  try:
    parsed = pipeline_options.PipelineOptions(list(options))
    pipeline = beam.Pipeline(options=parsed)
  except ValueError as error:
    raise errors.UserError(
      f'Beam refuses {" ".join(options)}: {" ".join(str(error).split())}'
    ) from error
  with pipeline:
    _ = (
      pipeline
      | beam.Create(list(enumerate(jobs)))
      # Else Beam may fuse the jobs into one bundle for one worker.
      | beam.Reshuffle()
      | beam.MapTuple(lambda n, job: _call(n, fn, job))
    )
  for job in jobs:
    yield fn(*job)


def _call(n, fn, job):
  fn(*job)
  return n
