"""jax's persistent cache of compiled programs."""

import errno
import os
import sys

import jax
from jax.experimental.compilation_cache import compilation_cache

from bert_jax import errors
from bert_jax.runtime import storage


def use():
  """Turns the cache on, in the user's folder or in our own, if there can be one."""
  if jax.config.jax_compilation_cache_dir:
    return
  try:
    folder = storage.get_cache_folder('xla')
    os.makedirs(folder, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
  except (OSError, errors.UserError) as error:
    print(
      f'compiled programs are not kept: {error}', file=sys.stderr, flush=True
    )
    return
  jax.config.update('jax_compilation_cache_dir', folder)
  compilation_cache.reset_cache()
