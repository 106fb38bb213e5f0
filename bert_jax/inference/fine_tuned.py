"""The model of a fine-tuning run, and of a trained head, for every task."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.model import bert_config, classifier

_FORMS = {'bert': classifier.Classifier, 'gpt': classifier.GptClassifier}
# {task: outputs of its model, if there is no data to count them}
_OUTPUTS = {'classification': 2, 'tagging': 9, 'choice': 1, 'spans': 2}
NO_FEATURES = 'none'  # finetuning.features if all parameters are trained


def list_sources(config: config_dict.ConfigDict) -> list[str]:
  """Returns the models that a run starts from: none or one.

  Or two, separated by a comma, whose features are joined.
  """
  given = config.init_from
  if config.finetuning.features == NO_FEATURES:
    return [given] if given else []
  return given.split(',') if given else []


def make_module(
  config: config_dict.ConfigDict, bert: bert_config.BertConfig
) -> nn.Module:
  """Returns the model that a fine-tuning run trains, with this encoder."""
  c, tokens = config.finetuning, config.task in classifier.TAGGERS
  # Their number is unknown if no data is read, as in preflight.
  outputs = c.outputs or _OUTPUTS.get(config.task, 2)
  common = bert, outputs, c.head_dropout, config.model.bilstm, tokens
  if c.features != NO_FEATURES:
    two = len(list_sources(config)) > 1
    return classifier.FeatureClassifier(*common, c.features, two)
  return _FORMS[c.form](*common)


def list_new_layers(layers: int, count: int) -> str:
  """Returns a regular expression for the parameters `reinit_layers` resets.

  They are the top layers' and those above them, the pooler's or the modern
  body's head's (arXiv 2006.05987).
  """
  if count > layers:
    raise errors.UserError(
      f'finetuning.reinit_layers={count} is more than the {layers} layers of '
      'the model.'
    )
  if not count:
    return ''
  numbers = '|'.join(map(str, range(layers - count, layers)))
  return rf'^(encoder/layer_({numbers})|pooler|head)/'


def list_inputs(rows: int, length: int) -> dict:
  """Returns {name: jax.ShapeDtypeStruct} of a model's inputs."""
  tokens = jax.ShapeDtypeStruct((rows, length), jnp.int32)  # [B, S]
  return dict.fromkeys(('input_ids', 'input_mask', 'segment_ids'), tokens)


def make_head_module(
  head: classifier.Head, bert: bert_config.BertConfig
) -> nn.Module:
  """Returns the model that computes a trained head's outputs."""
  common = bert, len(head.bias), 0.0, head.lstm_units, head.reads_tokens
  return _FORMS[head.form](*common)


def name_task(config: config_dict.ConfigDict) -> str:
  """Returns the name of a config's task; several labels are one of their own."""
  return 'multi_label' if config.finetuning.multi_label else config.task


def get_settings(
  config: config_dict.ConfigDict,
) -> classifier.Spans | classifier.Threshold | None:
  """Returns how outputs become predictions, before any tuning; None for most."""
  c = config.finetuning
  if c.multi_label:
    return classifier.Threshold()
  if config.task != 'spans':
    return None
  sizes = c.doc_stride, c.max_query_length, c.max_answer_length
  return classifier.Spans(*sizes, 0.0 if c.unanswerable else None)


def count_flops(module: nn.Module, length: int) -> float:
  """Returns the matrix-product FLOPs of one row, forward + backward."""
  bert, width = module.config, module.config.hidden_size
  gpt = isinstance(module, classifier.GptClassifier)
  flops = bert.flops_per_sequence(length, (length - 1) * gpt)
  if isinstance(module, classifier.FeatureClassifier):
    flops *= (1 + module.two) / 3  # forward alone
    layers = range(bert.num_layers + 1)[classifier.LAYERS[module.features]]
    width *= len(layers) if module.features.startswith('concat') else 1
    width *= 1 + module.two
  elif bert.modern:
    flops += 6 * width**2 * (length if module.tokens else 1)
  units = getattr(module, 'lstm_units', 0)
  if units:
    flops += classifier.count_lstm_flops(length, width, units)
  return flops
