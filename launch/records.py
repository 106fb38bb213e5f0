"""The working directory and the project of each run, noted on this machine.

Resources say it, too, but there are none once a run has ended.
"""

import json
import os

from launch import plan as plan_lib


def folder() -> str:
  """Returns the local folder of the launcher, made if need be."""
  state = os.environ.get('XDG_STATE_HOME') or os.path.expanduser(
    '~/.local/state'
  )
  path = os.path.join(state, 'bert_jax', 'launch')
  os.makedirs(path, exist_ok=True)
  return path


def write(plan: plan_lib.Plan):
  """Notes where a run is."""
  noted = {'workdir': plan.workdir, 'project': plan.project}
  with open(_path(plan.name), 'w', encoding='utf-8') as file:
    json.dump(noted, file)


def read(name: str) -> dict[str, str]:
  """Returns what `write` noted of a run; {} if it is not known here."""
  try:
    with open(_path(name), encoding='utf-8') as file:
      return json.load(file)
  except FileNotFoundError:
    return {}


def _path(name):
  return os.path.join(folder(), f'{name}.json')
