"""The runs of a grid: every combination of the values of some fields."""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ml_collections import config_dict

from bert_jax import config_check, errors
from bert_jax.config import FIELDS, flatten, set_field
from bert_jax.finetuning.readers import splits
from bert_jax.finetuning.readers.glue import LEFT_OUT

SEED = 'seed'
GLUE = 'glue'  # the field
_LONGEST = 80  # characters of a value in the name of a folder
_UNUSUAL = re.compile(r'[^\w.@+-]+')  # characters that the name leaves out


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
  """A run of a sweep or of a table: --config=`file` with `fields`.

  Its name is its folder's, such as 'learning_rate=2e-05,seed=0'; it starts from
  the runs that it needs, by their names.
  """

  name: str
  file: str
  fields: dict[str, Any]
  config: config_dict.ConfigDict
  needs: tuple[str, ...] = ()


def change(
  c: config_dict.ConfigDict, fields: Mapping[str, Any]
) -> config_dict.ConfigDict:
  """Returns a config with other values of fields, {path: value}."""
  new = c.copy_and_resolve_references()
  with new.ignore_type():
    new.update_from_flattened_dict(dict(fields))
  config_check.check(new)
  return new


def parse(text: str, config: config_dict.ConfigDict, file: str) -> list[Run]:
  """Returns the runs of a grid of a config, grouped by setting.

  Names of fields are as in `config.apply_arguments`; glue=all are all tasks.
  """
  axes: dict[str, list] = {}  # {path of a field: values}
  for item in shlex.split(text) or ['']:
    name, equals, values = item.partition('=')
    if not (name and equals):
      raise errors.UserError(
        f'--grid={text}: {item!r} is not FIELD=VALUE[,VALUE], such as '
        'learning_rate=2e-5,3e-5.'
      )
    for value in _list_values(name, values, config.data.input):
      new = config.copy_and_resolve_references()
      path = set_field(new, name, value)
      axes.setdefault(path, []).append(flatten(new)[path])
  paths = sorted(axes, key=lambda path: path == SEED)  # the seed is the last
  runs: dict[str, Run] = {}
  for values in itertools.product(*(axes[path] for path in paths)):
    fields = dict(zip(paths, values, strict=True))
    name = name_run(fields)
    if name in runs:
      raise errors.UserError(
        f'--grid={text} has two runs with the folder {name}; give each value '
        'once, and different names to what differs.'
      )
    runs[name] = Run(name, file, fields, change(config, fields))
  return list(runs.values())


def _list_values(name, values, folder) -> list[str]:
  """Returns the values of a field; glue=all are all tasks with files."""
  if (name.rpartition('.')[2], values) != (GLUE, 'all'):
    return values.split(',')
  tasks = splits.list_glue(folder)
  if not tasks:
    raise errors.UserError(
      f'data.input={folder} has no task of GLUE; name the folder that its '
      'download script writes, with CoLA, MRPC and so on.'
    )
  return [task for task in tasks if task != LEFT_OUT]


def name_run(fields: Mapping[str, Any]) -> str:
  """Returns the name of the run with these values of fields, {path: value}."""
  return ','.join(
    f'{name}={_UNUSUAL.sub("_", x.strip("/"))[-_LONGEST:]}'
    for name, x in describe(fields).items()
  )


def describe(fields: Mapping[str, Any]) -> dict[str, str]:
  """Returns {short name of a field: value as text}."""
  texts = {}
  for path, x in fields.items():
    if isinstance(x, tuple):  # mostly the same value for all phases
      x = x[0] if len({*x}) == 1 else '_'.join(map(str, x))
    texts[_shorten(path)] = str(x)
  return texts


def _shorten(path: str) -> str:
  """Returns the last part of a field's path, if no other field has it."""
  last = path.rpartition('.')[2]
  same = [x for x in FIELDS if x.rpartition('.')[2] == last]
  return last if len(same) == 1 else path
