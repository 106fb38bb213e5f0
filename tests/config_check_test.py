"""Tests of what a config may hold."""

import pytest

from bert_jax import config, config_check, errors


@pytest.mark.parametrize(
  'field, value, message',
  [
    ('model.activation', 'swish', 'not one of gelu, gelu_tanh, relu'),
    ('phases.steps', (5,), 'one entry per phase'),
    ('phases.steps', (5, 0), 'must be positive'),
    ('phases.seq_length', (128, 600), 'model.max_positions=512'),
    ('phases.accumulate', (1, 3), 'not divisible by phases.accumulate=3'),
    ('model.num_heads', 7, 'not divisible by model.num_heads=7'),
    ('objective.kind', 'ltr', 'needs objective.nsp=False'),
    ('objective.mask_mix', (0.8, 0.1, 0.2), 'sum to 1'),
    ('model.dropout', 1.0, 'below 1'),
    ('model.dropout', 0.999, '256 of 256 values; 255 of them, 0.9961, is the'),
    ('model.attention_dropout', 0.999, 'drops 256 of 256 values'),
    ('model.dropout', 0.001, '0 of 256 values; 1 of them, 0.0039, is the lea'),
    ('model.attention_dropout', 0.001, 'drops 0 of 256 values'),
    ('optimizer.warmup_steps', 2_000_000, 'leaves none'),
    ('checkpoint.every', 0, 'must be positive'),
    ('log.every', 0, 'must be positive'),
    ('eval.sequences', 0, 'must be positive'),
    ('eval.every', -1, 'must not be negative'),
    ('data.pack', 0, 'data.pack=0 must be positive'),
    ('data.pack', 256, 'data.pack=256 must be at most 255'),
    ('data.min_chars', -1, 'data.min_chars=-1 must not be negative'),
    ('data.shards', -1, 'data.shards=-1 must not be negative'),
    ('data.loader_workers', -2, 'data.loader_workers=-2 must be 0, more, or'),
    ('data.workers', -2, 'data.workers=-2 must be 0, more, or -1'),
    ('data.weights', (1.0, 2.0), 'one for each of the 1 input'),
    ('data.weights', (0.0,), 'must be positive'),
    ('data.weights', ('a',), 'must be numbers'),
    ('optimizer.clip_unit', 'core', 'not one of batch, micro_batch'),
    ('optimizer.decay_from', 'peak', 'not one of warmup, zero'),
    ('optimizer.reduce_dtype', 'float16', 'not one of float32, bfloat16'),
    ('compute.matmul_precision', 'tf32', 'not one of float32, tensorfloat32'),
    ('mesh.model', 0, 'mesh.model=0 must be positive'),
    ('profile_steps', -1, 'profile_steps=-1 must not be negative'),
    ('model.mask_value', 10_000.0, 'must be at most -1000'),
    ('objective.mask_unit', 'phrase', 'not one of token, word, span'),
  ],
)
def test_values_that_cannot_work(field, value, message):
  c = config.pretraining('base')
  c.update_from_flattened_dict({field: value})
  with pytest.raises(errors.UserError, match=message):
    config_check.check(c)


def test_no_number_of_shards_leaves_the_choice_to_the_size_of_the_text():
  c = config.pretraining('base')
  assert c.data.shards == 0
  config_check.check(c)


@pytest.mark.parametrize('rate', [0.0, 1 / 256, 255 / 256])
def test_the_least_and_the_most_dropout_are_allowed(rate):
  c = config.pretraining('base')
  c.model.dropout = c.model.attention_dropout = rate
  config_check.check(c)
