"""Trains a table of the paper with several seeds, and tests its claims.

  python -m bert_jax.reproduce --table=5 --config=configs/budget.py:cpu_quarter \\
    --workdir=DIR --data=FOLDER

--config is the budget, any config of pre-training; the table, which is in
tables.py beside it, changes some fields in each row. Run the same command again
to continue, or once more per device or host: they share the runs. After each
run, table5.md in --workdir has the results so far; see docs/reproduction.md.
"""

import os
import runpy
import shlex
import sys
import time

from absl import flags
from ml_collections import config_flags

from bert_jax import errors
from bert_jax.config import get_meanings
from bert_jax.runtime import cli


def main() -> int:
  """Runs the command; returns 0 if all runs are done."""
  import jax

  from bert_jax.experiments import claims, grid, share
  from bert_jax.pretraining import training_data
  from bert_jax.runtime import files, lock, storage

  jax.config.update('jax_platforms', 'cpu')  # accelerators are for the runs
  given, flag = flags.FLAGS, flags.FLAGS['config']
  c, directory = given.config, storage.resolve(given.workdir)
  file = config_flags.get_config_filename(flag)
  path = os.path.join(os.path.dirname(file.partition(':')[0]), 'tables.py')
  tables = runpy.run_path(path)['get_tables'](c)
  if given.table not in tables:
    known = ', '.join(tables)
    raise errors.UserError(f'--table={given.table} is not one of {known}.')
  table, data = tables[given.table], storage.resolve(given.data)
  if not storage.exists(data):
    raise errors.UserError(f'--data={data} does not exist; name a folder.')
  cells = grid.list_runs(table, c, file, directory, data)
  todo = [*dict.fromkeys(run for column in cells.values() for run in column)]
  todo.sort(key=lambda run: (run.config.seed, run.needs != ()))
  for name, column in table.columns.items():
    if (table.rows[0].name, name) not in cells:
      print(f'no {name}: {data} has no {column.folder}')
  print(share.describe_work(todo, directory, given.gflops), flush=True)
  if given.dry_run:
    return 0
  share.claim_directory(directory, c, [])  # names of runs have the rest
  while True:
    try:
      training_data.prepare_data(c, directory)
      break
    except lock.Held:  # another process prepares them
      time.sleep(1)
  name = f'table{given.table}' if given.table.isdigit() else given.table
  path, counts = os.path.join(directory, f'{name}.md'), {}
  command = shlex.join(['python', '-m', 'bert_jax.reproduce', *sys.argv[1:]])
  overrides = config_flags.get_override_values(flag)
  for results, failed in share.work(directory, todo, overrides):  # noqa: B007
    for run in (x for x in todo if x.name in results.keys() - counts.keys()):
      folder = os.path.join(directory, run.name)
      counts[run.name] = claims.read_counts(run, folder)
    done = share.describe_work(todo, directory, given.gflops)
    about = f'`{command}`\n\n{done}'
    text = claims.render(table, cells, results, counts, about)
    files.write_text(path, text)
    print(done, flush=True)
  print(path)
  return share.report_failures(failed)


def _define_flags():
  flags.DEFINE_string('table', None, '5, 6, 7, 8 or figure5 of the paper.')
  meaning = 'The budget, e.g. configs/budget.py:cpu_hour.'
  config_flags.DEFINE_config_file('config', None, meaning)
  flags.DEFINE_string('workdir', None, 'Directory of the runs and the page.')
  flags.DEFINE_string('data', None, 'Folder of the evaluation sets.')
  flags.DEFINE_bool('dry_run', False, 'Only print the plan and its cost.')
  meaning = "GFLOP/s, for the hours left; 0 is the finished runs' speed."
  flags.DEFINE_float('gflops', 0.0, meaning)
  flags.mark_flags_as_required(['table', 'config', 'workdir', 'data'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, fields=get_meanings())
