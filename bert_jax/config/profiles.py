"""Profiles: the details in which three BERT implementations differ, as fields.

`--config=FILE:profile=NAME` applies one. docs/fidelity.md compares them in
detail, and says what they do not cover.
"""

from bert_jax import errors

PROFILES = {
  # The paper (arXiv 1810.04805) and, where it gives no details, Google's code,
  # except what depends on the number of TPU cores. These are the defaults.
  'paper': {
    'model.activation': 'gelu_tanh',
    'model.norm_epsilon': 1e-12,
    'model.initializer': 'truncated_normal',
    'model.attention_init': 'random',
    'objective.unigram_bias': False,
    'model.mask_value': -10_000.0,
    'optimizer.epsilon': 1e-6,
    'optimizer.bias_correction': True,
    'optimizer.clip_unit': 'batch',
    'optimizer.decay_from': 'warmup',
    'data.strip_accents': 'auto',
    'data.negatives': 'input',
  },
  # google-research/bert: modeling.py, optimization.py. Set phases.accumulate
  # to the number of TPU cores to imitate.
  'google': {
    'model.activation': 'gelu_tanh',
    'model.norm_epsilon': 1e-12,
    'model.initializer': 'truncated_normal',
    'model.attention_init': 'random',
    'objective.unigram_bias': False,
    'model.mask_value': -10_000.0,
    'optimizer.epsilon': 1e-6,
    'optimizer.bias_correction': False,
    'optimizer.clip_unit': 'micro_batch',
    'optimizer.decay_from': 'zero',
    'data.strip_accents': 'as_lowercase',
    'data.negatives': 'uniform',
  },
  # Hugging Face transformers' BERT in PyTorch, its linear schedule, and the
  # defaults of torch.optim.AdamW.
  'hf': {
    'model.activation': 'gelu',
    'model.norm_epsilon': 1e-12,
    'model.initializer': 'normal',
    'model.attention_init': 'random',
    'objective.unigram_bias': False,
    'model.mask_value': -3.4028234663852886e38,  # the least float32
    'optimizer.epsilon': 1e-8,
    'optimizer.bias_correction': True,
    'optimizer.clip_unit': 'batch',
    'optimizer.decay_from': 'warmup',
    'data.strip_accents': 'as_lowercase',
    'data.negatives': 'uniform',
  },
}


def get_fields(name: str) -> dict:
  """Returns {field: value} of a profile.

  Raises:
    errors.UserError: for an unknown name.
  """
  if name not in PROFILES:
    raise errors.UserError(
      f'profile={name} is not one of {", ".join(PROFILES)}.'
    )
  return PROFILES[name]
