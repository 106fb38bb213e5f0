"""Tests of calling a function again and again."""

import threading

import pytest

from bert_jax import errors
from bert_jax.runtime import periodic


@pytest.mark.parametrize('error', [OSError('full'), errors.UserError('gone')])
def test_an_error_of_a_disk_or_bucket_is_a_warning_and_calls_go_on(
  capsys, error
):
  calls, often = [], threading.Event()

  def call():
    calls.append(threading.current_thread())
    if len(calls) == 1:
      raise error
    often.set()

  with periodic.calling(call, 0.001):
    assert often.wait(10)
  assert capsys.readouterr().err == f'warning: {error}\n'
  assert not calls[0].is_alive()  # no call after the body
