"""Tests of what a run that has begun may change."""

import pytest

from bert_jax import config
from bert_jax.workdir import changes


def find(new, old=None):
  c = config.declare_fields()
  c.update_from_flattened_dict(new)
  return changes.find(old or {}, c)


@pytest.mark.parametrize(
  'field, value, expected',
  [
    ('data.loader_workers', 2, changes.SAME_RESULT),
    ('data.skip_corrupt', True, changes.SAME_RESULT),
    ('eval.every', 5, changes.SAME_RESULT),
    ('eval.sequences', 5, changes.SAME_RESULT),
    ('log.every', 5, changes.SAME_RESULT),
    ('checkpoint.keep', 5, changes.SAME_RESULT),
    ('mesh.model', 2, changes.SAME_MEANING),
    ('compute.attention', 'xla', changes.SAME_MEANING),
    ('compute.remat', 'layer', changes.SAME_MEANING),
    ('phases.accumulate', (2, 2), changes.SAME_MEANING),
    ('phases.batch_size', (8, 8), changes.ANOTHER),
    ('model.dtype', 'bfloat16', changes.ANOTHER),
    ('data.pack', 2, changes.ANOTHER),
    ('seed', 1, changes.ANOTHER),
  ],
)
def test_what_a_change_does_to_a_run(field, value, expected):
  found = find({field: value})
  assert [kind for kind, fields in found.items() if fields] == [expected]
  assert list(found[expected]) == [field]


def test_micro_batches_that_are_clipped_by_themselves_are_another_experiment():
  clip = {'optimizer.clip_unit': 'micro_batch'}
  found = find({**clip, 'phases.accumulate': (2, 2)}, clip)
  assert list(found[changes.ANOTHER]) == ['phases.accumulate']


def test_when_the_best_model_is_chosen_is_part_of_a_run():
  best = {'finetuning.select': 'best'}
  found = find({**best, 'eval.every': 5}, best)
  assert list(found[changes.ANOTHER]) == ['eval.every']


def test_a_field_of_another_version_is_like_those_of_its_section():
  old = {'model.rope': 3, 'compute.fast': 1, 'rope': 3, 'data.rope': 3}
  found = find({}, old)
  assert list(found[changes.ANOTHER]) == ['data.rope', 'model.rope', 'rope']
  assert list(found[changes.SAME_MEANING]) == ['compute.fast']


def test_changes_are_worded_with_both_values():
  found = find({'log.every': 5, 'phases.accumulate': (1, 2)})
  assert changes.describe(found[changes.SAME_RESULT]) == (
    'log.every was 100, is 5'
  )
  assert changes.describe(found[changes.SAME_MEANING]) == (
    'phases.accumulate was [1, 1], is [1, 2]'
  )
