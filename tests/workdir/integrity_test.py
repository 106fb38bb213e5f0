"""Tests of telling sound checkpoints from bad ones."""

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.workdir import fingerprint, integrity


def test_the_newest_that_can_be_restored_is_found_and_newer_ones_named():
  def restore(step):
    if step > 2:
      raise ValueError(f'{step} is torn\nand more')
    return step * 10

  found, problems = integrity.restore_newest([1, 4, 2, 3], restore)
  assert found == 20
  assert problems == [(4, '4 is torn'), (3, '3 is torn')]
  assert integrity.describe(problems) == 'step 4: 4 is torn; step 3: 3 is torn'


def test_a_signal_during_a_restore_is_no_bad_checkpoint():
  def interrupted(step):
    raise errors.Interrupted(15, 'resume')

  with pytest.raises(errors.Interrupted):
    integrity.restore_newest([1, 2], interrupted)


@pytest.mark.parametrize(
  'error', [MemoryError(), PermissionError(), ValueError('RESOURCE_EXHAUSTED')]
)
def test_what_says_nothing_about_the_checkpoint_is_raised(error):
  def restore(step):
    raise error

  with pytest.raises(type(error)):
    integrity.restore_newest([1, 2], restore)


def test_another_array_or_a_missing_one_is_noticed():
  state = {'a': np.arange(3.0), 'b': np.zeros(2)}
  marks = fingerprint.of_arrays(state)
  integrity.verify(state, marks)
  with pytest.raises(ValueError, match='1 array.* first a'):
    integrity.verify({**state, 'a': np.arange(3.0)[::-1].copy()}, marks)
  with pytest.raises(ValueError, match='1 array.* first b'):
    integrity.verify({'a': state['a']}, marks)


def test_facts_of_another_step_are_noticed():
  marks = fingerprint.of_arrays({'a': np.arange(3.0)})
  facts = {
    'step': 3,
    'fingerprint': fingerprint.combine(marks),
    'fingerprints': marks,
  }
  integrity.verify_facts(3, facts)
  with pytest.raises(ValueError, match='it says step 3 .* but is step 4'):
    integrity.verify_facts(4, facts)
