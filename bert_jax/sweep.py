"""Fine-tunes with every combination of some fields' values, and compares.

  python -m bert_jax.sweep --config=configs/glue.py:rte --workdir=runs/rte \\
    --config.init_from=runs/base --config.data.input=glue_data \\
    --grid='learning_rate=2e-5,3e-5,4e-5,5e-5 batch_size=16,32 seed=0,1,2,3,4'

Each run is one of bert_jax.main in a folder of --workdir, such as
learning_rate=2e-05,batch_size=16,seed=0; what it prints is in its output.txt.
Run the same command again to continue after a kill, a failure or Ctrl-C (which
saves the current run first); runs that are done are not repeated, and a larger
grid adds runs. Start it once per device or host, with the same --workdir, and
they share the runs out.

The grid 'glue=all' runs all tasks of GLUE in the folder, and ends with their mean.

At the end: a table of the scores on dev by setting, mean and standard deviation
over the seeds, in --workdir also as results.json. The exit code comes from the
runs that failed (docs/faults.md).
"""

from absl import flags
from ml_collections import config_flags

from bert_jax import errors
from bert_jax.config import get_meanings
from bert_jax.runtime import cli


def main() -> int:
  """Runs the command; returns 0 if all runs are done."""
  import jax

  from bert_jax import config_check
  from bert_jax.experiments import grid, share, table
  from bert_jax.runtime import files, storage
  from bert_jax.workdir import paths

  jax.config.update('jax_platforms', 'cpu')  # accelerators are for the runs
  given, flag = flags.FLAGS, flags.FLAGS['config']
  config, directory = given.config, storage.resolve(given.workdir)
  config_check.check(config)
  if config.task == 'pretraining':
    raise errors.UserError(
      'a sweep compares scores on dev, which pre-training does not have; give '
      'a config for fine-tuning, such as configs/glue.py:rte.'
    )
  runs = grid.parse(given.grid, config, config_flags.get_config_filename(flag))
  share.claim_directory(directory, config, runs)
  overrides = config_flags.get_override_values(flag)
  path = paths.results(directory)
  for results, failed in share.work(directory, runs, overrides):  # noqa: B007
    summary = table.summarise(runs, results)
    files.write_json(path, summary)
  print('\n'.join(['', *table.render(summary), *table.describe_best(summary)]))
  glue = summary['glue']
  if glue and glue['mean'] is not None:
    print(
      f'mean over {", ".join(glue["tasks"])} (without WNLI): {glue["mean"]:.4f}'
    )
  print(f'  {path}')
  return share.report_failures(failed)


def _define_flags():
  meaning = 'The experiment, e.g. configs/glue.py:rte.'
  config_flags.DEFINE_config_file('config', None, meaning)
  meaning = (
    "FIELD=VALUE[,VALUE] ..., e.g. 'learning_rate=2e-5,3e-5 seed=0,1,2'."
  )
  flags.DEFINE_string('grid', None, meaning)
  flags.DEFINE_string('workdir', None, 'Directory of the sweep, or gs://.')
  flags.mark_flags_as_required(['config', 'grid', 'workdir'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, fields=get_meanings())
