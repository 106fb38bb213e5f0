"""What a run of fine-tuning starts from: a model, and what follows from it and data.

The paper's learning rates, in `config/recipes.py`, are for hidden sizes of 768
and 1024. Smaller models need higher ones: Google chose from 3e-5 to 3e-4 for
its miniatures, of 128 to 512 (github.com/google-research/bert). The rule here
was fitted by `c42b1acc:benchmarks/measure/finetuning_scores.py --rates`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import flatten, recipes
from bert_jax.data import accents
from bert_jax.finetuning import batches, encode
from bert_jax.inference import fine_tuned, padding, source, transfer
from bert_jax.model import classifier
from bert_jax.parallel import distributed
from bert_jax.tokenization import fast_tokenizer
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.trainer import task
from bert_jax.workdir import claim

_LENGTH_STEP = 8  # tokens
_PAPERS_SIZE = 768  # the least hidden size that the paper fine-tunes
_LEAST = 4  # factor of a rate
# Power of the ratio of hidden sizes, and highest rate. At 128, higher rates were
# worse, at 256 lower ones for texts and higher ones for tokens.
_FOR_TEXTS, _FOR_TOKENS = (2.5, 3e-4), (2, 1e-3)
_UPDATES = 500  # least for a small model, if rows are few
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
_WITH_BIASES = 'classification', 'tagging'  # tasks whose labels give biases
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
    c.optimizer.freeze = _FROZEN
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
  f = c.finetuning
  for name, wrong, reason in (
    (
      'finetuning.head_bias',
      f.head_bias == 'labels' and c.task not in _WITH_BIASES,
      'only heads for classes, tags and numbers have such biases',
    ),
    (
      'optimizer.freeze',
      f.features != fine_tuned.NO_FEATURES and c.optimizer.freeze,
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
  if len(models) > 1:
    both = classifier.turn(models[0].config), models[1].config
    wrong = [x for x in _JOINED if len({getattr(c, x) for c in both}) > 1]
    if models[0].tokenizer != models[1].tokenizer:
      wrong.append('vocabulary')
    if wrong or len(models) > 2:
      raise errors.UserError(
        f'init_from={config.init_from} must be two models, which differ only in '
        f'their direction, not in {", ".join(wrong) or "their number"}.'
      )
  return models


def read_tokenizer(
  c: config_dict.ConfigDict, models: Sequence[source.Source] | None = None
) -> Tokenizer:
  """Returns the tokenizer of the `models` of `init_from`, or of `data.vocab`."""
  models = read_models(c) if models is None else models
  if models:
    tokenizer = models[0].tokenizer
  elif c.data.vocab:
    lowercase = c.data.lowercase
    asked = accents.read_choice(c.data.strip_accents, lowercase)
    tokenizer = fast_tokenizer.load(c.data.vocab, lowercase, asked)
    strip, _ = accents.decide(asked, lowercase, tokenizer.vocab)
    tokenizer = dataclasses.replace(tokenizer, strip_accents=strip)
  else:
    raise errors.UserError(
      'init_from is empty; name a trained model, or, for random weights, give '
      'data.vocab=VOCAB.txt and a size (:size=tiny).'
    )
  return encode.extend(tokenizer) if c.finetuning.form == 'gpt' else tokenizer


def _fill_model(c):
  f, models = c.finetuning, read_models(c)
  if models:
    transfer.check_segments(models[0], c.init_from)
    transfer.fill_model(c, models[0])
    c.model.max_positions = min(x.config.max_positions for x in models)
  tokenizer = read_tokenizer(c, models)
  c.data.lowercase = tokenizer.lowercase
  c.data.strip_accents = str(tokenizer.strip_accents).lower()
  c.data.vocab_size = tokenizer.size
  layers = c.model.num_layers
  fine_tuned.list_new_layers(layers, f.reinit_layers)  # refuses too many
  if f.features != fine_tuned.NO_FEATURES:
    if not models:
      raise errors.UserError(
        f'finetuning.features={f.features} needs init_from: the model, or '
        'MODEL,MODEL, that computes them.'
      )
    classifier.check_layers('finetuning.features', f.features, layers)
  wrong = c.model.pooling != 'cls' and 'pooling'
  if c.model.body == 'modern':
    wrong = c.model.bilstm and 'bilstm'
  if wrong:
    raise errors.UserError(
      f'model.{wrong}={c.model[wrong]} is not for model.body={c.model.body}, '
      'which has another head; leave it out.'
    )
  if f.form == 'gpt' and c.objective.kind != 'ltr':
    raise errors.UserError(
      'finetuning.form=gpt predicts the next token, too, so it needs a model '
      'that reads from left to right; pre-train one with objective.kind=ltr.'
    )
  if models:
    longest = max(c.phases.seq_length)
    transfer.check_length(longest, c.model.max_positions, c.init_from)


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
  f, vocab_size = config.finetuning, config.data.vocab_size
  if read_tokenizer(config, models).size != vocab_size:
    raise errors.UserError(
      f'init_from={config.init_from} has other words than the {vocab_size:,} '
      'when the data was made; start again in another --workdir.'
    )
  if distributed.is_first():
    for path, model in zip(paths, models, strict=True):
      transfer.warn_of_long_rows(max(config.phases.seq_length), path, model)
  if f.features == fine_tuned.NO_FEATURES:
    models = [_add_head(config, labels, models[0])]
  stay_new = fine_tuned.list_new_layers(
    config.model.num_layers, f.reinit_layers
  )
  params, facts = transfer.transfer(
    models[0], paths[0], new, vocab_size, stay_new
  )
  for path, beside in zip(paths[1:], models[1:], strict=True):
    made = transfer.transfer(beside, path, new['beside'], vocab_size)
    params['beside'], facts['beside'] = made
  return params, facts


def _add_head(config, labels, model: source.Source) -> source.Source:
  """Returns the source with its head's parameters if the run's is like it."""
  head = model.head
  if head is None:
    return model
  name = fine_tuned.name_task(config)
  wanted = name, labels, config.finetuning.form, config.model.bilstm
  read = config.model.pooling == model.config.pooling or head.reads_tokens
  if read and (head.task, head.labels, head.form, head.lstm_units) == wanted:
    return model._replace(params=head.add_to(model.params))
  named = errors.listing(list(head.labels) or ['a number'])
  print(
    f'the head of {config.init_from} is left out, which is for {head.task} '
    f'({named}) with finetuning.form={head.form} and '
    f'model.bilstm={head.lstm_units} and model.pooling={model.config.pooling}',
    flush=True,
  )
  return model


def complete(
  config: config_dict.ConfigDict, data: Any, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with what follows from the data, and prints the plan.

  A run that has begun has that already.
  """
  c, rows = config.copy_and_resolve_references(), data.splits['train'].size
  if not claim.is_final(workdir):
    _fill_from_data(c, data, rows)
  [phase] = task.list_phases(c)
  lengths = (phase.seq_length,)
  if c.finetuning.by_length:
    lengths = batches.list_lengths(phase)
  of = errors.listing([*map(str, lengths)])
  print(f'{describe_plan(c, rows)}\nbatches of {of} tokens', flush=True)
  return c


def _fill_from_data(c, data, rows):
  train, f = data.splits['train'], c.finetuning
  f.outputs = len(data.labels) or 1
  f.num_choices = getattr(train, 'choices', 0)
  asked = f.max_length = max(c.phases.seq_length)
  longest = max(int(x.lengths.max()) for x in data.splits.values())
  c.phases.seq_length = (padding.round_up(longest, _LENGTH_STEP, asked),)
  rate, epochs = choose(c, rows)
  c.optimizer.learning_rate = c.optimizer.learning_rate or rate
  f.epochs = f.epochs or epochs
  if f.head_bias == 'auto':
    small = c.model.hidden_size < _PAPERS_SIZE
    f.head_bias = 'labels' if small and c.task in _WITH_BIASES else 'zeros'
  [batch_size] = c.phases.batch_size
  steps = max(1, int(f.epochs * rows / batch_size))
  c.phases.steps = (steps,)
  c.optimizer.warmup_steps = int(f.warmup * steps)
  [phase] = task.list_phases(c)
  f.by_length = f.by_length and batches.pays(phase, c.model)
  # After each epoch, but ten times at most.
  often = max(-(-rows // batch_size), -(-steps // 10))
  c.eval.every = c.eval.every or often


def choose(c: config_dict.ConfigDict, rows: int) -> tuple[float, float]:
  """Returns the learning rate and the epochs for a model and its data.

  From a hidden size of 768 on they are the paper's, whatever the data.
  """
  rate, epochs = recipes.get_paper(c).values()
  smaller = _PAPERS_SIZE / c.model.hidden_size
  if smaller <= 1:
    return rate, epochs
  [batch_size] = c.phases.batch_size
  enough = math.ceil(_UPDATES * batch_size / rows)
  for_tokens = c.task in classifier.TAGGERS
  power, highest = _FOR_TOKENS if for_tokens else _FOR_TEXTS
  rate = min(rate * max(smaller**power, _LEAST), highest)
  return float(f'{rate:.1e}'), max(epochs, float(enough))


def describe_plan(c: config_dict.ConfigDict, rows: int) -> str:
  """Returns a line on what a completed run is going to do."""
  [batch_size], [steps] = c.phases.batch_size, c.phases.steps
  usual_rate, usual = choose(c, rows)
  rate, epochs = c.optimizer.learning_rate, c.finetuning.epochs
  said = f'{usual:g} times at {usual_rate:g}'
  if (rate, epochs) == (usual_rate, usual):
    said = 'this'
  return (
    f'{steps:,} updates: {epochs:g} times {rows:,} rows in batches of '
    f'{batch_size}, learning rate {rate:g} (the default for a hidden size of '
    f'{c.model.hidden_size} is {said})'
  )


def advise(c: config_dict.ConfigDict, rows: int) -> str:
  """Returns what to try if a run has learnt nothing, as a clause."""
  rate, epochs = choose(c, rows)
  was, seen = c.optimizer.learning_rate, c.finetuning.epochs
  rate = rate if was < rate else 2.5 * was
  epochs = epochs if seen < epochs else 3 * seen
  return (
    f'after {sum(c.phases.steps):,} updates at {was:g}, try '
    f'finetuning.epochs={epochs:g} or optimizer.learning_rate={rate:g}'
  )
