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

The grid 'glue=all' runs all tasks of GLUE in the folder, and ends with their
mean and a zip for GLUE's leaderboard.

At the end: a table of the scores on dev by setting, mean and standard deviation
over the seeds, in --workdir also as results.json and, with matplotlib, as
results.png. The exit code comes from the runs that failed (docs/exit_codes.md).
"""

import os

from absl import flags
from ml_collections import config_flags

from bert_jax import errors
from bert_jax.config import get_meanings
from bert_jax.runtime import cli


def main() -> int:
  """Runs the command; returns 0 if all runs are done."""
  import jax

  from bert_jax import config_check
  from bert_jax.runtime import files, storage
  from bert_jax.sweep import grid, results, share
  from bert_jax.workdir import paths

  # Accelerators are for the runs.
  jax.config.update('jax_platforms', 'cpu')
  given = flags.FLAGS
  config, directory = given.config, storage.resolve(given.workdir)
  config_check.check(config)
  if config.task == 'pretraining':
    raise errors.UserError(
      'a sweep compares scores on dev, which pre-training does not have; give '
      'a config for fine-tuning, such as configs/glue.py:rte.'
    )
  runs = grid.parse(given.grid, config)
  share.check_inputs(directory, config, runs[0])
  share.check_config(directory, config, runs)
  flag = given['config']
  file = config_flags.get_config_filename(flag)
  overrides = config_flags.get_override_values(flag)

  def make_command(run):
    return share.make_command(file, overrides | run.fields)

  for found, failed in share.work(directory, runs, make_command):  # noqa: B007
    summary = results.summarise(runs, found)
    path = paths.results(directory)
    with errors.explaining(f'cannot write {path}'):
      files.write_json(path, summary)
  print('\n'.join(['', *results.render(summary)]))
  _report(directory, summary, config)
  return share.report_failures(failed)


def _report(directory, summary, config):
  """Prints what was best and draws the picture."""
  from bert_jax.sweep import grid, results

  best, setting, glue = (summary[x] for x in ('best', 'best_setting', 'glue'))
  if best:
    print(f'best run: {best["run"]}, {best["metric"]} {best["value"]:.4f}')
  if setting and setting['fields']:
    fields = ', '.join(f'{k}={v}' for k, v in setting['fields'].items())
    print(f'best mean: {fields}, {setting["metric"]} {setting["mean"]:.4f}')
  written = ['results.json']
  if glue and glue['mean'] is not None:
    tasks = glue['tasks']
    names = ', '.join(x for x in tasks if x != grid.LEFT_OUT)
    print(f'mean over {names} (without WNLI): {glue["mean"]:.4f}')
    path = os.path.join(directory, 'submission.zip')
    missing = results.write_submission(path, directory, tasks, config)
    if missing is not None:
      written.append('submission.zip')
    if missing:
      print(f'submission.zip lacks {", ".join(missing)}, which GLUE asks for')
  if summary['done']:
    try:
      results.draw(os.path.join(directory, 'results.png'), summary)
      written.append('results.png')
    except errors.UserError as error:
      print(error)
  for name in written:
    print(f'  {os.path.join(directory, name)}')


def _define_flags():
  config_flags.DEFINE_config_file(
    'config', None, 'The experiment, e.g. configs/glue.py:rte.'
  )
  flags.DEFINE_string(
    'grid',
    None,
    'FIELD=VALUE[,VALUE] for each field, separated by spaces, e.g. '
    "'learning_rate=2e-5,3e-5 seed=0,1,2'.",
  )
  flags.DEFINE_string(
    'workdir', None, 'Directory of the sweep, local or gs://.'
  )
  flags.mark_flags_as_required(['config', 'grid', 'workdir'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, fields=get_meanings())
