"""Trains a model from text; writes checkpoints, curves and an exported model.

  python -m bert_jax.main --config=configs/tiny.py --workdir=/tmp/bert_tiny

Give fields of the config after a colon or as flags of their own:

  --config=configs/base.py:smoke,batch_size=64 --config.data.input='text/*.txt'

--help beside --config lists all fields with their values and meanings.

Run the same command again to resume. SIGINT (Ctrl-C), SIGTERM and SIGHUP save a
checkpoint first. On many hosts start the same command on each (docs/hosts.md).
"""

import contextlib
import json
from collections.abc import Collection

from absl import flags
from ml_collections import config_dict, config_flags

from bert_jax.config import get_meanings, list_typed
from bert_jax.runtime import cli, machine, storage


def run(
  config: config_dict.ConfigDict, workdir: str, typed: Collection[str] = ()
):
  """Prepares the data, trains and exports; resumes an interrupted run.

  `typed` are the fields that a user set by name, see `transfer.check_given`.
  """
  # Imported here and below, so that --help and the processes that prepare data,
  # which import this module, do not wait for jax.
  from bert_jax import config_check, tasks
  from bert_jax.config import to_json
  from bert_jax.inference import transfer
  from bert_jax.parallel import agreement, distributed
  from bert_jax.trainer import fit
  from bert_jax.workdir import claim, status

  task = tasks.get(config)
  config_check.check(config)
  config = claim.pin_sources(config, workdir)
  given, config = config, task.take_model(config, workdir)
  transfer.check_given(given, config, typed)
  config_check.check(config)
  agreement.check_same({**json.loads(to_json(config)), **agreement.hash_code()})
  fit.check_devices(config)
  claim.check_shared(workdir)
  with contextlib.ExitStack() as stack:
    told = status.Status()
    if distributed.is_first():
      stack.enter_context(claim.claim(workdir, config))
      fit.check_disk(config, task.make_objective(config), workdir)
      phases = config.phases.steps
      told = status.Status(workdir, sum(phases), len(phases))
      stack.enter_context(told)
    config, data = _prepare(task, config, workdir, told)
    made = task.make_task(config, data)
    agreement.check_same(made.facts)
    trained = fit.fit(config, made, workdir, told)
    distributed.first_then_all(
      'export', lambda: task.finish(config, data, workdir, *trained)
    )


def _prepare(task, config, workdir, status):
  """Returns the config, completed from the data, and the data."""
  from bert_jax import config_check
  from bert_jax.config import recipes, to_json
  from bert_jax.parallel import agreement, distributed
  from bert_jax.workdir import claim, paths

  distributed.first_then_all('data', lambda: task.prepare(config, workdir))
  data = task.open(config, workdir)
  distributed.barrier('opened')  # copying it may take minutes
  config = task.complete(config, data, workdir)
  config_check.check(config)
  agreement.check_same(json.loads(to_json(config)))
  if distributed.is_first():
    if not claim.is_final(workdir):  # then with what follows from the data
      claim.adopt(workdir, config)
    status.note(steps=sum(config.phases.steps))
    if config.data.dir:
      claim.keep(workdir, config.data.dir)
  # Only now, after all checks of what the user gave.
  where = f'all of the config: {paths.config(workdir)}'
  print(f'not the default, of what decides the result ({where}):')
  print(recipes.describe(config), flush=True)
  return config, data


def check_early(config: config_dict.ConfigDict):
  """Raises errors.UserError for what is wrong with the config or local paths.

  That takes a second or two less before jax is imported, and leaves no folder.
  """
  from bert_jax import config_check
  from bert_jax.corpus import sources, text_files
  from bert_jax.data import recipe

  config_check.check(config)
  # Of fine-tuning, 'train=FILE,dev=FILE'; prepared data need no input.
  given = recipe.list_inputs(config.data)
  inputs = [x.rpartition('=')[2] for x in given]
  for path in [] if config.data.dir else filter(sources.is_file, inputs):
    if not storage.is_remote(path):
      text_files.expand(path)


def train(
  config: config_dict.ConfigDict,
  workdir: str,
  hosts: tuple[str | None, int | None, int | None] = (None, 1, None),
  typed: Collection[str] = (),
):
  """Does what the command does: `run`, after checks that need no jax.

  Args:
    workdir: local or in a bucket; a run that is there is resumed.
    hosts: as `distributed.start` takes them.
  """
  check_early(config)
  from bert_jax.parallel import distributed

  distributed.start(*hosts)
  with distributed.leaving_together():
    machine.keep_programs()
    run(config, storage.resolve(workdir), typed)


def main():
  f = flags.FLAGS
  typed = list_typed(f['config'].config_filename.partition(':')[2])
  typed.update(config_flags.get_override_values(f['config']))
  hosts = f.coordinator, f.num_processes, f.process_id
  train(f.config, f.workdir, hosts, typed)


if __name__ == '__main__':
  machine.keep_freed_memory()
  config_flags.DEFINE_config_file(
    'config', None, 'The experiment, e.g. configs/tiny.py or tiny.py:smoke.'
  )
  flags.DEFINE_string('workdir', None, 'Directory of the run, local or gs://.')
  meaning = 'HOST:PORT of process 0, if hosts do not find one another.'
  flags.DEFINE_string('coordinator', None, meaning)
  meaning = 'Processes of the run; 1 looks for no other hosts of a TPU.'
  flags.DEFINE_integer('num_processes', None, meaning)
  flags.DEFINE_integer('process_id', None, 'Number of this process, from 0.')
  flags.mark_flags_as_required(['config', 'workdir'])
  cli.run(main, fields=get_meanings())
