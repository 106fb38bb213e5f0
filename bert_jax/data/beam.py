"""Runs the jobs of `prepare` on Apache Beam, with any of its runners.

Jobs write their results to files, so the pipeline only distributes the jobs;
all workers must share a file system, or the output is in a bucket.
"""

from collections.abc import Callable, Iterator, Sequence

from bert_jax import errors


def run(
  fn: Callable, jobs: Sequence[tuple], options: Sequence[str]
) -> Iterator:
  """Yields fn(*job) for each job in order, after a Beam pipeline has run them.

  Args:
    fn: a module-level function that writes its result to a file; a second call
      with the same arguments returns that result.
    jobs: the arguments of each call.
    options: Beam's options, for example --runner=DirectRunner.

  Raises:
    errors.UserError: if Beam is not installed, or rejects the options.
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
      # Otherwise Beam may fuse all jobs into one bundle, for one worker.
      | beam.Reshuffle()
      | beam.MapTuple(lambda n, job: _call(n, fn, job))
    )
  for job in jobs:
    yield fn(*job)


def _call(n, fn, job):
  fn(*job)
  return n
