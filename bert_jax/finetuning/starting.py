"""The model that fine-tuning starts from: its sizes, vocabulary, parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten
from bert_jax.data import accents
from bert_jax.finetuning import encode
from bert_jax.inference import fine_tuned, source, transfer
from bert_jax.model import frozen_features
from bert_jax.parallel import distributed
from bert_jax.tokenization.tokenizer import Tokenizer, read_vocab
from bert_jax.workdir import claim

# What a run that has begun takes from its saved config: what was filled in and,
# where a field still has the value that asks for a choice, what was chosen.
_FILLED = (
  *('model.', 'data.vocab_size', 'data.lowercase', 'data.strip_accents'),
  *('objective.kind', 'objective.nsp', 'phases.seq_length', 'phases.steps'),
  *('optimizer.warmup_steps', 'finetuning.outputs', 'finetuning.num_choices'),
)
_UNDECIDED = {
  'optimizer.learning_rate': 0,
  'finetuning.epochs': 0,
  'finetuning.by_length': True,
  'finetuning.head_bias': 'auto',
  'eval.every': 0,
}
WITH_BIASES = 'classification', 'tagging'  # tasks whose labels give biases
_FROZEN = '^(beside|embeddings|encoder)/'  # with features
# What two models have in common whose features are joined.
_JOINED = (
  *('kind', 'num_layers', 'hidden_size', 'num_heads', 'mlp_size', 'activation'),
  *('norm', 'norm_epsilon', 'type_vocab_size'),
)


def take_model(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with what follows from the model that it starts from.

  A run that has begun keeps what was filled in then, even if its source is gone.
  """
  c, begun = config.copy_and_resolve_references(), claim.is_final(workdir)
  if not begun:
    _check_fields(c)
    _fill_model(c)
  if c.finetuning.features != fine_tuned.NO_FEATURES:
    c.optimizer.freeze = c.optimizer.freeze or _FROZEN
  if not begun:
    return c
  given, own = flatten(c), {f'model.{name}' for name in transfer.OWN}
  free = {name for name, value in _UNDECIDED.items() if given[name] == value}
  # The length that was asked for; `phases.seq_length` was lowered.
  asked = c.finetuning.max_length or max(c.phases.seq_length)
  saved = claim.restore(
    c,
    workdir,
    lambda name: name in free or (name.startswith(_FILLED) and name not in own),
  )
  if saved['finetuning.max_length']:
    c.finetuning.max_length = asked
  return c


def _check_fields(c):
  if len(c.phases.steps) != 1:
    raise errors.UserError(
      f'phases have {len(c.phases.steps)} entries; fine-tuning has one.'
    )
  f, told = c.finetuning, c.task in WITH_BIASES
  frozen = f.features != fine_tuned.NO_FEATURES
  for name, wrong, reason in (
    (
      'finetuning.head_bias',
      f.head_bias == 'labels' and not told,
      'only heads for classes, tags and numbers have such biases',
    ),
    (
      'optimizer.freeze',
      frozen and c.optimizer.freeze,
      'finetuning.features freezes the whole model',
    ),
    ('data.dir', c.data.dir, 'the data of fine-tuning is in its --workdir'),
    ('data.vocab', c.init_from and c.data.vocab, 'init_from brings its own'),
    ('resize_positions', c.resize_positions, 'fine-tuning keeps them'),
  ):
    if wrong:
      raise errors.UserError(
        f'{name}={flatten(c)[name]} means nothing here, since {reason}; leave it '
        'out.'
      )


def read_models(config: config_dict.ConfigDict) -> list[source.Source]:
  """Reads the models that a run starts from: one, or two that are joined."""
  paths = fine_tuned.list_sources(config)
  models = [source.read(path) for path in paths]
  for path, model in zip(paths[1:], models[1:], strict=True):
    theirs, ours = model.config, frozen_features.turn(models[0].config)
    wrong = [
      f'{x} is {getattr(theirs, x)}, not {getattr(ours, x)}'
      for x in _JOINED
      if getattr(theirs, x) != getattr(ours, x)
    ]
    if model.tokenizer != models[0].tokenizer:
      wrong.append('it has another vocabulary')
    if len(models) > 2:
      wrong.append('there is a third model')
    if wrong:
      raise errors.UserError(
        f'the features of {path} cannot be joined to those of {paths[0]}: '
        f'{"; ".join(wrong)}.'
      )
  return models


def read_tokenizer(
  c: config_dict.ConfigDict, models: Sequence[source.Source] | None = None
) -> Tokenizer:
  """Returns the tokenizer of the `models` of `init_from`, or of `data.vocab`."""
  models = read_models(c) if models is None else models
  tokenizer = models[0].tokenizer if models else _read_own_tokenizer(c.data)
  if c.finetuning.form == 'gpt':
    return encode.extend(tokenizer)
  return tokenizer


def _read_own_tokenizer(data):
  if not data.vocab:
    raise errors.UserError(
      'init_from is empty; name a trained model, or, for random weights, give '
      'data.vocab=VOCAB.txt and a size (:size=tiny).'
    )
  vocab, lowercase = read_vocab(data.vocab), data.lowercase
  asked = accents.read_choice(data.strip_accents, lowercase)
  strip = accents.decide_without_text(asked, lowercase, vocab).strip
  return Tokenizer(vocab, lowercase, strip)


def _fill_model(c):
  models = read_models(c)
  if models:
    transfer.check_segments(models[0], c.init_from)
    transfer.fill_model(c, models[0])
    c.model.max_positions = min(x.config.max_positions for x in models)
  tokenizer = read_tokenizer(c, models)
  c.data.lowercase = tokenizer.lowercase
  c.data.strip_accents = str(tokenizer.strip_accents).lower()
  c.data.vocab_size = tokenizer.size
  _check_layers(c)
  if c.finetuning.form == 'gpt' and c.objective.kind != 'ltr':
    raise errors.UserError(
      'finetuning.form=gpt predicts the next token, too, so it needs a model '
      'that reads from left to right; pre-train one with objective.kind=ltr.'
    )
  if models:
    longest = max(c.phases.seq_length)
    transfer.check_length(longest, c.model.max_positions, c.init_from)


def _check_layers(c):
  count = c.finetuning.reinit_layers
  fine_tuned.list_new_layers(c.model.num_layers, count)  # refuses too many
  features = c.finetuning.features
  if features == fine_tuned.NO_FEATURES:
    return
  if not c.init_from:
    raise errors.UserError(
      f'finetuning.features={features} needs init_from: the model, or '
      'MODEL,MODEL, that computes them.'
    )
  layers = c.model.num_layers
  frozen_features.check_layers('finetuning.features', features, layers)


def make_start(
  config: config_dict.ConfigDict,
  labels: Sequence[str],
  bias: np.ndarray | None,
):
  """Returns `task.Task.start` of a config; None if all weights are random.

  A head of the same kind, for the same labels, is taken over; a new one begins with
  `bias`, [C], or zeros.
  """

  def start(new):
    if bias is not None:
      new = {**new, 'classifier': {**new['classifier'], 'bias': bias}}
    if not config.init_from:
      return new, {}
    return _take_over(config, tuple(labels), new)

  return None if bias is None and not config.init_from else start


def _take_over(config, labels, new: Any) -> tuple[Any, dict]:
  paths, models = fine_tuned.list_sources(config), read_models(config)
  if distributed.is_first():
    for path, one in zip(paths, models, strict=True):
      transfer.warn_of_long_rows(max(config.phases.seq_length), path, one)
  model, *beside = models
  if config.finetuning.features == fine_tuned.NO_FEATURES:
    model = _add_head(config, labels, model)
  wanted, words = config.data.vocab_size, model.tokenizer.size
  gpt = config.finetuning.form == 'gpt'
  added = len(encode.GPT_TOKENS) if gpt else 0
  if words + added != wanted:
    raise errors.UserError(
      f'init_from={config.init_from} has {words:,} words now, {wanted - added:,} '
      'when the data was made; start again in another --workdir.'
    )
  stay_new = fine_tuned.list_new_layers(
    config.model.num_layers, config.finetuning.reinit_layers
  )
  params, facts = transfer.transfer(model, paths[0], new, wanted, stay_new)
  for second in beside:
    params['beside'], facts['beside'] = transfer.transfer(
      second, paths[1], new['beside'], wanted
    )
  return params, facts


def _add_head(config, labels, model: source.Source) -> source.Source:
  """Returns the source with its head's parameters if the run's is like it."""
  head = model.head
  if head is None:
    return model
  name = fine_tuned.name_task(config)
  wanted = name, labels, config.finetuning.form, config.model.bilstm
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
