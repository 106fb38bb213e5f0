"""The rows that finetuning.py and lengths.py use, encoded as by bert_jax.main."""

import os
import runpy

ROOT = os.path.dirname(os.path.abspath(__file__)) + '/../..'


def get_config(name, arguments, **fields):
  """Returns the config of a file in the folder configs.

  Args:
    name: of the file, without .py.
    arguments: those after the colon of --config.
    **fields: further fields, with a double underscore in place of a dot.
  """
  found = runpy.run_path(os.path.join(ROOT, 'configs', f'{name}.py'))
  c = found['get_config'](arguments)
  c.update_from_flattened_dict(
    {key.replace('__', '.'): value for key, value in fields.items()}
  )
  return c


def encode(c, workdir):
  """Encodes the files of a config.

  Args:
    c: the config.
    workdir: where to write the rows to.

  Returns:
    (c completed, directory of the rows).
  """
  from bert_jax import config_check, tasks

  definition = tasks.get(c)
  c = definition.complete(c, workdir)
  c.finetuning.by_length = True  # however few updates there are
  config_check.check(c)
  definition.prepare(c, workdir)
  return c, definition.open(c, workdir)


def find_sst2(glue):
  """Returns data.input for SST-2 in a folder of GLUE."""
  return ','.join(
    f'{split}={os.path.join(glue, "SST-2", split)}.tsv'
    for split in ('train', 'dev')
  )
