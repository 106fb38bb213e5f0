"""The key-value store of jax's coordination service.

Process 0 keeps it in memory, and all processes read and write it over the
network. It lasts as long as process 0.
"""

from typing import Any

import jax

_FOLDER = 'bert_jax'


class Store:
  """Texts by key.

  Each method waits for process 0, without limit if its host hangs, and raises
  jax.errors.JaxRuntimeError if it cannot be reached.

  Args:
    client: the client of `jax.distributed`.
  """

  def __init__(self, client: Any):
    self._client = client

  def write(self, key: str, text: str):
    """Sets the text of a key, replacing an earlier one."""
    self._client.key_value_set(
      f'{_FOLDER}/{key}', _clean(text), allow_overwrite=True
    )

  def create(self, key: str, text: str) -> bool:
    """Sets the text of a new key; returns False if there is one already."""
    try:
      self._client.key_value_set(f'{_FOLDER}/{key}', _clean(text))
    except jax.errors.JaxRuntimeError as error:
      if not str(error).startswith('ALREADY_EXISTS'):
        raise
      return False
    return True

  def read(self, key: str) -> str | None:
    """Returns the text of a key; None if there is none."""
    try:
      return self._client.key_value_try_get(f'{_FOLDER}/{key}')
    except jax.errors.JaxRuntimeError as error:
      if not str(error).startswith('NOT_FOUND'):
        raise
      return None

  def read_all(self, folder: str) -> dict[str, str]:
    """Returns {rest of the key: text} of the keys that begin with `folder`/."""
    prefix = f'{_FOLDER}/{folder}/'
    found = self._client.key_value_dir_get(prefix)
    return {key.removeprefix(prefix): text for key, text in found}


def _clean(text: str) -> str:
  # A file's name in an error message may be no valid text.
  return text.encode(errors='replace').decode()


def connect() -> Store:
  """Returns the store of this run, after `distributed.start`."""
  from jax._src import distributed  # there is no public API

  return Store(distributed.global_state.client)
