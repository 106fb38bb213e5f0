"""The model of a fine-tuning run, and of a trained head, for every task."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.model import bert_config, classifier, feature_model, parameters

# {task: outputs of its model, if there is no data to count them}
_OUTPUTS = {'classification': 2, 'tagging': 9, 'choice': 1, 'spans': 2}
NO_FEATURES = 'none'  # finetuning.features if all parameters are trained


def list_sources(config: config_dict.ConfigDict) -> list[str]:
  """Returns the models that a run starts from.

  These are one or none; or several, separated by commas, whose features are
  joined.
  """
  given = config.init_from
  if not given or config.finetuning.features == NO_FEATURES:
    return [given] if given else []
  return given.split(',')


def find_feature_shape(config: config_dict.ConfigDict) -> tuple[int, int]:
  """Returns (K, D): number and width of the layers of a token's features."""
  layers = feature_model.list_layers(
    config.finetuning.features, config.model.num_layers
  )
  # Preflight may not name any model.
  models = max(1, len(list_sources(config)))
  return len(layers), models * config.model.hidden_size


def make_module(
  config: config_dict.ConfigDict, bert: bert_config.BertConfig
) -> nn.Module:
  """Returns the model that a fine-tuning run trains, with this encoder."""
  c, tokens = config.finetuning, config.task in classifier.TAGGERS
  # Their number is unknown if no data is read, as in preflight.
  common = bert, c.outputs or _OUTPUTS.get(config.task, 2), c.head_dropout
  units = config.model.bilstm
  if c.features != NO_FEATURES:
    return feature_model.FeatureModel(
      *common, units, c.features, find_feature_shape(config), tokens
    )
  if tokens:
    return classifier.Tagger(*common, units)
  if c.form == 'gpt':
    return classifier.GptClassifier(*common)
  return classifier.Classifier(*common, units)


def make_init(module: nn.Module) -> Callable[[Any], Any]:
  """Returns a function that maps a random key to new parameters."""
  if isinstance(module, feature_model.FeatureModel):
    return lambda key: feature_model.init(module, key)
  return lambda key: parameters.init(module, key)


def list_new_layers(config: config_dict.ConfigDict) -> str:
  """Returns a regular expression for the parameters `reinit_layers` resets.

  They are the top layers' and the pooler's above them (arXiv 2006.05987).
  """
  layers, count = config.model.num_layers, config.finetuning.reinit_layers
  if count > layers:
    raise errors.UserError(
      f'finetuning.reinit_layers={count} is more than the {layers} layers of '
      'the model.'
    )
  if not count:
    return ''
  numbers = '|'.join(map(str, range(layers - count, layers)))
  return rf'^(encoder/layer_({numbers})|pooler)/'


def list_inputs(module: nn.Module, rows: int, length: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a model's inputs."""
  tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)  # [B, S]
  if isinstance(module, feature_model.FeatureModel):
    shape = rows, length, *module.shape  # [B, S, K, D]
    features = jax.ShapeDtypeStruct(shape, jnp.float32)
    return {'features': features, 'input_mask': tokens}
  return dict.fromkeys(('input_ids', 'input_mask', 'segment_ids'), tokens)


def make_head_module(
  head: classifier.Head, bert: bert_config.BertConfig
) -> nn.Module:
  """Returns the model that computes a trained head's outputs."""
  common = bert, len(head.bias), 0.0
  if head.form == 'gpt':
    return classifier.GptClassifier(*common)
  made = classifier.Tagger if head.reads_tokens else classifier.Classifier
  return made(*common, head.lstm_units)


def name_task(config: config_dict.ConfigDict) -> str:
  """Returns the name of a config's task; several labels are one of their own."""
  return 'multi_label' if config.finetuning.multi_label else config.task


def get_settings(
  config: config_dict.ConfigDict,
) -> classifier.Spans | classifier.Threshold | None:
  """Returns how outputs become predictions, before any tuning; None for most."""
  if config.finetuning.multi_label:
    return classifier.Threshold()
  if config.task != 'spans':
    return None
  c = config.finetuning
  return classifier.Spans(
    c.doc_stride,
    c.max_query_length,
    c.max_answer_length,
    0.0 if c.unanswerable else None,
  )


def count_flops(module: nn.Module, length: int) -> float:
  """Returns the matrix-product FLOPs of one row, forward + backward."""
  bert, flops, width = module.config, 0.0, module.config.hidden_size
  if isinstance(module, feature_model.FeatureModel):
    layers, width = module.shape
    width *= layers if module.features.startswith('concat') else 1
  else:
    gpt = isinstance(module, classifier.GptClassifier)
    flops = bert.flops_per_sequence(length, (length - 1) * gpt)
  units = getattr(module, 'lstm_units', 0)
  if units:
    flops += classifier.count_lstm_flops(length, width, units)
  return flops
