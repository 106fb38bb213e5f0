"""Where the working directory of each run is, noted on this machine.

Resources say it, too, but there are none once a run has ended.
"""

import json
import os


def folder() -> str:
  """Returns the local folder of the launcher, made if need be."""
  state = os.environ.get('XDG_STATE_HOME') or os.path.expanduser(
    '~/.local/state'
  )
  path = os.path.join(state, 'bert_jax', 'launch')
  os.makedirs(path, exist_ok=True)
  return path


def write(name: str, workdir: str):
  """Notes the working directory of a run."""
  with open(_path(name), 'w', encoding='utf-8') as file:
    json.dump({'workdir': workdir}, file)


def read(name: str) -> str | None:
  """Returns the working directory of a run; None if it is not known here."""
  try:
    with open(_path(name), encoding='utf-8') as file:
      return json.load(file)['workdir']
  except FileNotFoundError:
    return None


def _path(name):
  return os.path.join(folder(), f'{name}.json')
