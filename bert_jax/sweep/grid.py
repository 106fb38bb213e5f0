"""The runs of a sweep: every combination of the values of some fields."""

import itertools
import re
import shlex
from typing import Any, NamedTuple

from ml_collections import config_dict

from bert_jax import config_check, errors
from bert_jax.config import FIELDS, flatten, set_field
from bert_jax.finetuning.readers import splits

_SEED = 'seed'
GLUE = 'glue'  # the field
# Its dev rows contradict its training rows: the paper leaves it out of the mean
# and predicts the commonest class.
LEFT_OUT = 'wnli'
_LONGEST = 80  # characters of a value in the name of a folder
_UNUSUAL = re.compile(r'[^\w.@+-]+')  # characters that the name leaves out


class Run(NamedTuple):
  """A run of a sweep.

  Attributes:
    name: its folder's name, such as 'learning_rate=2e-05,seed=0'.
    fields: {path of a field: value}, as in the grid.
    setting: {short name of a field: value as text}, of all fields but the seed.
    needs: names of runs that have to be done first.
  """

  name: str
  fields: dict[str, Any]
  setting: dict[str, str]
  needs: tuple[str, ...] = ()

  def apply(self, config: config_dict.ConfigDict) -> config_dict.ConfigDict:
    """Returns the config of this run of an experiment."""
    new = config.copy_and_resolve_references()
    with new.ignore_type():
      new.update_from_flattened_dict(self.fields)
    return new


def parse(text: str, config: config_dict.ConfigDict) -> list[Run]:
  """Returns the runs of a grid, grouped by setting.

  Args:
    text: NAME=VALUE[,VALUE] for each field, separated by spaces; names as in
      `config.apply_arguments`; glue=all are all tasks of GLUE.
  """
  try:
    items = shlex.split(text)
  except ValueError as error:
    raise errors.UserError(f'--grid={text}: {error}.') from None
  if not items:
    raise errors.UserError(
      "--grid is empty; give fields with values: 'learning_rate=2e-5,3e-5'."
    )
  axes: dict[str, list] = {}  # {path of a field: values}
  for item in items:
    name, equals, values = item.partition('=')
    if not (name and equals):
      raise errors.UserError(
        f'--grid={text}: {item!r} is not FIELD=VALUE[,VALUE], such as '
        'learning_rate=2e-5,3e-5.'
      )
    for value in _list_values(name, values, config):
      new = config.copy_and_resolve_references()
      path = set_field(new, name, value)
      axes.setdefault(path, []).append(flatten(new)[path])
  paths = sorted(axes, key=lambda path: path == _SEED)  # the seed is the last
  found: dict[str, Run] = {}
  for values in itertools.product(*(axes[path] for path in paths)):
    run = make(dict(zip(paths, values, strict=True)))
    config_check.check(run.apply(config))
    if run.name in found:
      raise errors.UserError(
        f'--grid={text} has two runs with the folder {run.name}; give each '
        'value once, and different names to what differs.'
      )
    found[run.name] = run
  return list(found.values())


def _list_values(name, values, config) -> list[str]:
  """Returns the values of a field; glue=all are all tasks with files."""
  if (name.rpartition('.')[2], values) != (GLUE, 'all'):
    return values.split(',')
  found = splits.list_glue(config.data.input)
  if not found:
    raise errors.UserError(
      f'data.input={config.data.input} has no task of GLUE; name the folder that '
      'its download script writes, with CoLA, MRPC and so on.'
    )
  return [task for task in found if task != LEFT_OUT]


def make(fields: dict[str, Any]) -> Run:
  """Returns the run with these values of fields, {path: value}."""
  texts = {}
  for path, x in fields.items():
    if isinstance(x, tuple):  # mostly the same value for all phases
      x = x[0] if len({*x}) == 1 else '_'.join(map(str, x))
    texts[_shorten(path)] = str(x)
  parts = [
    f'{name}={_UNUSUAL.sub("_", x.strip("/"))[-_LONGEST:]}'
    for name, x in texts.items()
  ]
  texts.pop(_SEED, None)
  return Run(','.join(parts), fields, texts)


def _shorten(path: str) -> str:
  """Returns the last part of a field's path, if no other field has it."""
  last = path.rpartition('.')[2]
  same = [x for x in FIELDS if x.rpartition('.')[2] == last]
  return last if len(same) == 1 else path
