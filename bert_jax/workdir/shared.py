"""Checks that all hosts share the working directory."""

import contextlib
import os

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax import errors
from bert_jax.parallel import distributed
from bert_jax.runtime import storage

_NAME = '.shared'


def check_shared(workdir: str):
  """Checks that all processes see what process 0 writes.

  All write their part of a checkpoint there. Every process must call this.
  """
  if jax.process_count() == 1:
    return
  token, path = os.urandom(8), os.path.join(workdir, _NAME)
  failure = None
  if distributed.is_first():
    try:
      _write(path, token)
    except OSError as error:  # the others wait below and must be told
      failure = error
  token = multihost_utils.broadcast_one_to_all(np.frombuffer(token, np.uint8))
  if distributed.find_largest(failure is not None):
    reason = f' ({failure.strerror})' if failure else ''
    raise errors.UserError(
      f'host 0 cannot write to {workdir}{reason}; make it writable, or give '
      'another --workdir.'
    )
  found = b''
  with contextlib.suppress(OSError):
    found = storage.read(path)
  absent = jax.process_index() if found != token.tobytes() else 0
  absent = distributed.find_largest(absent)
  if distributed.is_first():
    with contextlib.suppress(OSError):  # it does no harm
      storage.delete(path)
  if absent:
    raise errors.UserError(
      f'host {absent} does not see what host 0 wrote to {workdir}; give a '
      '--workdir that all hosts share: gs://BUCKET/NAME, or a shared disk.'
    )


def _write(path: str, token: bytes):
  storage.make_folder(os.path.dirname(path))
  storage.write(path, token)
