"""An experiment's config: fields, recipes, arguments, and how it is saved."""

from bert_jax.config.arguments import apply_arguments, list_typed, set_field
from bert_jax.config.fields import (
  FIELDS,
  check_fields,
  declare_fields,
  get_meanings,
  model_config,
)
from bert_jax.config.readings import (
  flatten,
  to_json,
  unflatten,
)
from bert_jax.config.recipes import (
  SIZES,
  describe,
  finetuning,
  pretraining,
  read_size,
)
