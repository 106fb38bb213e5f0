"""Fills in what follows from a run's model and data, before it starts."""

import dataclasses
from collections.abc import Sequence

from ml_collections import config_dict

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.data import accents
from bert_jax.finetuning import (
  buckets,
  features,
  gpt_form,
  recipe,
  supervised,
)
from bert_jax.inference import fine_tuned, source
from bert_jax.model import bert_config, feature_model
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer as tokenizer_lib
from bert_jax.workdir import claim, paths

# Fields of `model` that are not the source's: the recipe's or the chip's.
_OWN = (
  'dropout',
  'attention_dropout',
  'dtype',
  'mask_value',
  'initializer',
  'attention_init',
  'bilstm',
)
_FILLED = (
  'model.',
  'data.vocab_size',
  'data.lowercase',
  'data.strip_accents',
  'objective.kind',
  'objective.nsp',
  'phases.seq_length',
  'phases.steps',
  'optimizer.warmup_steps',
  'finetuning.outputs',
  'finetuning.max_length',
  'finetuning.num_choices',
  'finetuning.by_length',
)
_ASKED_FOR_BY_0 = 'optimizer.learning_rate', 'finetuning.epochs', 'eval.every'
_LENGTH_STEP = 8  # tokens


def take_model(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with what follows from the model that it starts from.

  These are its sizes, its vocabulary and what its text is like. A run that has
  begun keeps all that was filled in then, even if its source is gone.

  Raises:
    errors.UserError: if the model cannot be read or does not work.
  """
  c = config.copy_and_resolve_references()
  if claim.is_final(workdir):
    saved = files.read_json(paths.config(workdir))
    given = config_lib.flatten(c)
    free = {name for name in _ASKED_FOR_BY_0 if not given[name]}
    with c.ignore_type():
      c.update_from_flattened_dict(
        {
          name: tuple(value) if isinstance(value, list) else value
          for name, value in saved.items()
          if name in free
          or (name.startswith(_FILLED) and name not in _own_fields())
        }
      )
    return c
  _check_fields(c)
  _fill_model(c)
  return c


def complete(
  config: config_dict.ConfigDict, data: supervised.Data, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with what follows from the data, and prints the plan.

  These are the learning rate and the epochs (see `recipe`), the number of
  classes, of steps (from the epochs) and of steps of the warm-up, the sequence
  length, lowered to the longest row, and whether batches by length pay. A run
  that has begun has them already.
  """
  c, rows = config.copy_and_resolve_references(), data.splits['train'].size
  if not claim.is_final(workdir):
    _fill_from_data(c, data, rows)
  print(f'{recipe.describe(c, rows)}\n{buckets.describe(c)}', flush=True)
  return c


def _fill_from_data(c, data, rows):
  c.finetuning.outputs = len(data.labels) or 1
  c.finetuning.num_choices = getattr(data.splits['train'], 'choices', 0)
  c.finetuning.max_length = max(c.phases.seq_length)
  c.phases.seq_length = (find_length(c, data.manifest),)
  rate, epochs = recipe.choose(c, rows)
  c.optimizer.learning_rate = c.optimizer.learning_rate or rate
  c.finetuning.epochs = c.finetuning.epochs or epochs
  [batch_size] = c.phases.batch_size
  steps = max(1, int(c.finetuning.epochs * rows / batch_size))
  c.phases.steps = (steps,)
  c.optimizer.warmup_steps = int(c.finetuning.warmup * steps)
  if c.finetuning.by_length:
    c.finetuning.by_length = buckets.pays(c, data.splits['train'].lengths)
  # After each epoch, but ten times at most.
  often = max(-(-rows // batch_size), -(-steps // 10))
  c.eval.every = c.eval.every or often


def find_length(c: config_dict.ConfigDict, manifest: dict) -> int:
  """Returns the tokens of a batch's rows, at most: of the longest, rounded up.

  Args:
    c: the experiment, which asks for at most max(phases.seq_length).
  """
  longest = max(facts['longest'] for facts in manifest['splits'].values())
  length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
  return min(max(c.phases.seq_length), max(length, _LENGTH_STEP))


def find_max_length(config: config_dict.ConfigDict) -> int:
  """Returns the tokens of a row in predictions, at most.

  Args:
    config: the experiment; one that was not completed, or before there was
      `finetuning.max_length`, has `phases.seq_length`.
  """
  return config.finetuning.max_length or max(config.phases.seq_length)


def _check_fields(c):
  """Refuses fields that would have no effect."""
  if len(c.phases.steps) != 1:
    raise errors.UserError(
      f'phases have {len(c.phases.steps)} entries; fine-tuning has one.'
    )
  for name, value, reason in (
    ('data.dir', c.data.dir, 'the data of fine-tuning is in its --workdir'),
    ('data.vocab', c.init_from and c.data.vocab, 'init_from brings its own'),
    ('resize_positions', c.resize_positions, 'fine-tuning keeps them'),
  ):
    if value:
      raise errors.UserError(
        f'{name}={value} means nothing here, since {reason}; leave it out.'
      )


def _own_fields() -> set[str]:
  return {f'model.{name}' for name in _OWN}


def read_tokenizer(c: config_dict.ConfigDict) -> tokenizer_lib.Tokenizer:
  """Returns the tokenizer of `init_from`, or else of `data.vocab`.

  GPT's form adds its tokens.

  Raises:
    errors.UserError: if it cannot be read.
  """
  return _choose_tokenizer(c, features.read_models(c))


def _choose_tokenizer(c, models: Sequence[source.Source]):
  tokenizer = models[0].tokenizer if models else _read_own_tokenizer(c)
  if c.finetuning.form == 'gpt':
    tokenizer = gpt_form.extend(tokenizer)
  return tokenizer


def _read_own_tokenizer(c):
  if not c.data.vocab:
    raise errors.UserError(
      'init_from is empty; name a trained model, or, for a model with random '
      'weights, give data.vocab=VOCAB.txt and a size (:size=tiny).'
    )
  vocab, lowercase = tokenizer_lib.read_vocab(c.data.vocab), c.data.lowercase
  asked = accents.read_choice(c.data.strip_accents, lowercase)
  strip = accents.decide_without_text(asked, lowercase, vocab).strip
  return tokenizer_lib.Tokenizer(vocab, lowercase, strip)


def _fill_model(c: config_dict.ConfigDict):
  models = features.read_models(c)
  if models:
    _fill_sizes(c, models[0].config)
    positions = (model.config.max_positions for model in models)
    c.model.max_positions = min(positions)
  tokenizer = _choose_tokenizer(c, models)
  c.data.lowercase = tokenizer.lowercase
  c.data.strip_accents = str(tokenizer.strip_accents).lower()
  c.data.vocab_size = tokenizer.size
  _check_layers(c)
  if c.finetuning.form == 'gpt' and c.objective.kind != 'ltr':
    raise errors.UserError(
      'finetuning.form=gpt predicts the next token, too, so it needs a model '
      'that reads from left to right; pre-train one with objective.kind=ltr.'
    )
  if models and max(c.phases.seq_length) > c.model.max_positions:
    raise errors.UserError(
      f'phases.seq_length={max(c.phases.seq_length)} is more than the '
      f'{c.model.max_positions} positions of init_from={c.init_from}; set '
      f'seq_length={c.model.max_positions} or less.'
    )


def _check_layers(c):
  kind, layers = c.finetuning.features, c.model.num_layers
  if kind == fine_tuned.NO_FEATURES:
    return
  if not c.init_from:
    raise errors.UserError(
      f'finetuning.features={kind} needs init_from: the model, or MODEL,MODEL'
      ', that computes them.'
    )
  least = -(feature_model.LAYERS[kind].start or 0)
  if layers < least:
    raise errors.UserError(
      f'finetuning.features={kind} needs {least} layers, init_from has '
      f'{layers}; use last or weighted_sum_all.'
    )


def _fill_sizes(c, bert: bert_config.BertConfig):
  known = {field.name for field in dataclasses.fields(bert)}
  for name in set(c.model) & known - set(_OWN):
    c.model[name] = getattr(bert, name)
  c.objective.kind = 'mlm'
  if bert.causal:
    c.objective.kind = 'rtl' if bert.reverse else 'ltr'
  c.objective.nsp = not bert.causal
