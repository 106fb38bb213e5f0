"""The parameters that fine-tuning starts from."""

import functools
from collections.abc import Sequence
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import gpt_form
from bert_jax.inference import fine_tuned, source, transfer


def make_start(config: config_dict.ConfigDict, labels: Sequence[str]):
  """Returns `task.Task.start` of a config; None for random weights.

  A model on frozen features has these, too.

  Args:
    labels: names of the classes; a head for the same ones, of the same kind, is
      taken over, too.
  """
  features = config.finetuning.features
  if not config.init_from or features != fine_tuned.NO_FEATURES:
    return None
  return functools.partial(_start, config, tuple(labels))


def _start(config, labels, new: Any) -> tuple[Any, dict]:
  model = _add_head(config, labels, source.read(config.init_from))
  wanted, words = config.data.vocab_size, model.tokenizer.size
  added = len(gpt_form.TOKENS) if config.finetuning.form == 'gpt' else 0
  if words + added != wanted:
    raise errors.UserError(
      f'init_from={config.init_from} has {words:,} words now, '
      f'{wanted - added:,} when '
      'the data was made; start again in another --workdir.'
    )
  return transfer.transfer(
    model, config.init_from, new, wanted, list_new_layers(config)
  )


def _add_head(config, labels, model: source.Source) -> source.Source:
  """Returns the source with its head's parameters if the run's is like it."""
  head = model.head
  if head is None:
    return model
  wanted = config.task, labels, config.finetuning.form, config.model.bilstm
  if (head.task, head.labels, head.form, head.lstm_units) == wanted:
    return model._replace(params=head.add_to(model.params))
  named = errors.listing(list(head.labels) or ['a number'])
  print(
    f'the head of {config.init_from} is left out, which is for {head.task} '
    f'({named}) with finetuning.form={head.form} and '
    f'model.bilstm={head.lstm_units}',
    flush=True,
  )
  return model


def check(config: config_dict.ConfigDict, workdir: str):
  """Raises errors.UserError for a run that cannot work."""
  del workdir
  list_new_layers(config)


def list_new_layers(config: config_dict.ConfigDict) -> str:
  """Returns a regular expression for what `reinit_layers` starts anew.

  These are the top layers and the pooler above them (arXiv 2006.05987).

  Raises:
    errors.UserError: if the model has fewer layers.
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
