"""Tests of telling sound checkpoints from bad ones."""

import pytest

from bert_jax import errors
from bert_jax.workdir import integrity


def test_a_signal_during_a_restore_is_no_bad_checkpoint():
  def interrupted(step):
    raise errors.Interrupted(15)

  with pytest.raises(errors.Interrupted):
    integrity.restore_newest([1, 2], interrupted)


def judge(error):
  with integrity.judging('checkpoints/7'):
    raise error


@pytest.mark.parametrize(
  ('error', 'said'),
  [
    (MemoryError(), 'MemoryError'),
    (ValueError("UNKNOWN: Failed [os_error_code='5']"), 'Failed. That'),
    (ValueError('trees do not match\nparams'), 'trees do not match. That'),
    (ValueError("NOT_FOUND: x: Stale [os_error_code='116']"), 'Stale. That'),
  ],
)
def test_what_proves_no_damage_stops_with_what_happened(error, said):
  said = f'checkpoint checkpoints/7: .*{said}.*nothing was'
  with pytest.raises(OSError, match=said):
    judge(error)


@pytest.mark.parametrize(
  'said',
  [
    'OUT_OF_RANGE: Error reading x: not valid for value of size 234',
    'NOT_FOUND: Error opening x [tensorstore_spec=...]',
    'Error opening x: Error decoding manifest: Truncated stream',
  ],
)
def test_missing_or_senseless_bytes_are_damage_also_below(said):
  def wrapped():
    try:
      raise ValueError(said)
    except ValueError as error:
      raise Exception('Encountered error\nand more') from error

  with pytest.raises(integrity.Damaged, match=said.split(' [')[0]):
    try:
      wrapped()
    except Exception as error:
      judge(error)
