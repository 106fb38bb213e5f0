"""Calls a reader with a hostile file."""

import tracemalloc

import pytest

from bert_jax import errors

_MAX_BYTES = 50_000_000


def refusal(read, *arguments) -> str:
  """Returns the message of a UserError: one line, after little memory."""
  tracemalloc.start()
  try:
    with pytest.raises(errors.UserError) as error:
      read(*arguments)
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  message = str(error.value)
  assert '\n' not in message
  assert len(message) < 800
  assert peak < _MAX_BYTES
  return message
