"""An experiment's config: fields, recipes, arguments, and how it is saved."""

from bert_jax.config.arguments import apply_arguments, set_field
from bert_jax.config.fields import EXAMPLES, declare_fields, model_config
from bert_jax.config.recipes import (
  SIZES,
  describe,
  finetuning,
  get_paper,
  pretraining,
  smoke,
)
from bert_jax.config.serialization import (
  flatten,
  is_like,
  to_json,
  unflatten,
)

__all__ = [
  'EXAMPLES',
  'SIZES',
  'apply_arguments',
  'declare_fields',
  'describe',
  'finetuning',
  'flatten',
  'get_paper',
  'is_like',
  'model_config',
  'pretraining',
  'set_field',
  'smoke',
  'to_json',
  'unflatten',
]
