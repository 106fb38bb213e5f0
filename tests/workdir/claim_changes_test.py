"""Tests of what a run that has begun may change."""

import pytest

from bert_jax import config
from bert_jax.workdir import claim


def find(new, old=None):
  c = config.declare_fields()
  c.update_from_flattened_dict(new)
  return claim.find_differences(old or {}, c)


@pytest.mark.parametrize(
  'field, value, expected',
  [
    ('data.workers', 2, claim.SAME_RESULT),
    ('eval.every', 5, claim.SAME_RESULT),
    ('mesh.model', 2, claim.SAME_MEANING),
    ('phases.accumulate', (2, 2), claim.SAME_MEANING),
    ('phases.batch_size', (8, 8), claim.ANOTHER),
    ('seed', 1, claim.ANOTHER),
  ],
)
def test_what_a_change_does_to_a_run(field, value, expected):
  found = find({field: value})
  assert [kind for kind, fields in found.items() if fields] == [expected]
  assert list(found[expected]) == [field]


def test_micro_batches_that_are_clipped_by_themselves_are_another_experiment():
  clip = {'optimizer.clip_unit': 'micro_batch'}
  found = find({**clip, 'phases.accumulate': (2, 2)}, clip)
  assert list(found[claim.ANOTHER]) == ['phases.accumulate']


def test_when_the_best_model_is_chosen_is_part_of_a_run():
  best = {'finetuning.select': 'best'}
  found = find({**best, 'eval.every': 5}, best)
  assert list(found[claim.ANOTHER]) == ['eval.every']


def test_a_field_of_another_version_is_part_of_a_run():
  assert list(find({}, {'model.rope': 3})[claim.ANOTHER]) == ['model.rope']
