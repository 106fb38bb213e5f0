"""Writes, and applies, the manifest of a run on a GKE cluster with TPUs.

  python launch/gke.py --name=large --image=REGISTRY/bert_jax --queue=tpus \\
    --config=configs/large.py --workdir=gs://BUCKET/large \\
    --topology=v6e-16 --slices=2 > large.yaml

Prints a JobSet. Further arguments --config.field=value go to the run.
"""

import argparse
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert_jax import errors
from launch import commands, estimate, jobset, slices
from launch import plan as plan_lib


def make_parser() -> argparse.ArgumentParser:
  """Returns the parser of the command line."""
  parser = argparse.ArgumentParser(
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  add = parser.add_argument
  add('--name', required=True, help='of the run and of its JobSet')
  add('--image', required=True, help='with bert_jax[tpu,gcs] and the configs')
  add('--config', required=True, help='such as configs/large.py')
  add('--workdir', required=True, help='gs://BUCKET/FOLDER of the run')
  add('--topology', required=True, help='v6e-16, v5litepod-16, v5e:4x4, ...')
  add('--slices', type=int, default=1, help='slices, joined by the network')
  add('--spot', action='store_true', help='use spot nodes')
  add('--queue', help='LocalQueue of Kueue')
  add(
    '--quota',
    type=int,
    help='also make that queue, for so many chips at a time',
  )
  add('--max_hours', type=float, default=72.0, help='(default: 72)')
  add(
    '--apply',
    action='store_true',
    help='let the cluster of kubectl check the manifest, then start it',
  )
  return parser


def make_documents(given) -> list[dict]:
  """Returns the objects of the manifest.

  Raises:
    errors.UserError: if an argument cannot be.
  """
  plan_lib.check_run(given.name, given.workdir, given.overrides)
  plan_lib.check_positive(max_hours=given.max_hours)
  if given.quota is not None and not given.queue:
    raise errors.UserError('--quota does nothing without --queue.')
  topology = slices.parse(given.topology, given.slices)
  arguments = [
    f'--config={given.config}',
    f'--workdir={given.workdir}',
    *given.overrides,
  ]
  queues = []
  if given.quota is not None:
    if given.quota < topology.chips:
      raise errors.UserError(
        f'--quota={given.quota} admits no run on {topology.chips} chips; '
        f'{topology.chips} or more do.'
      )
    queues = jobset.make_queues(given.queue, topology, given.quota)
  made = jobset.make(
    given.name,
    given.image,
    arguments,
    topology,
    given.spot,
    given.queue,
    int(given.max_hours * 3600),
  )
  return [*queues, made]


def apply(run: commands.Execute, text: str):
  """Starts what a manifest describes, if the cluster accepts all of it.

  Raises:
    errors.UserError: if it does not.
  """
  with tempfile.NamedTemporaryFile('w', suffix='.yaml') as file:
    file.write(text)
    file.flush()
    argv = ['kubectl', 'apply', f'--filename={file.name}']
    for more in (['--dry-run=server'], []):
      result = run([*argv, '--validate=strict', *more])
      if result.code:
        raise errors.UserError(result.err.strip() or 'kubectl failed')
  commands.say(result.out.strip())


def main(argv: list[str], run: commands.Execute = commands.execute) -> int:
  """Runs the command; returns its exit code.

  Args:
    argv: the arguments.
    run: runs commands; tests give a stand-in.
  """
  given, given_overrides = make_parser().parse_known_args(argv)
  given.overrides = given_overrides
  documents = make_documents(given)
  estimate.check_config(run, given.config, given.overrides)
  text = '---\n'.join(map(jobset.to_yaml, documents))
  if given.apply:
    apply(run, text)
  else:
    print(text, end='')
  return 0


if __name__ == '__main__':
  try:
    sys.exit(main(sys.argv[1:]))
  except errors.UserError as error:
    sys.exit(f'error: {error}')
