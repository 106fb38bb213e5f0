"""Calls a reader with a hostile file."""

import pytest

from bert_jax import errors


def refusal(read, *arguments) -> str:
  """Returns the message of a UserError, of one line."""
  with pytest.raises(errors.UserError) as error:
    read(*arguments)
  message = str(error.value)
  assert '\n' not in message and len(message) < 800
  return message
