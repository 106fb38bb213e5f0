"""Checks a config: each field by its declaration, and rules between fields."""

import re

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import FIELDS, check_fields, readings, recipes
from bert_jax.data import recipe
from bert_jax.ops import dropout_rate


def check(c: config_dict.ConfigDict):
  """Raises errors.UserError for values that cannot work, alone or together."""
  check_fields(c)
  check_model(c)
  _check_phases(c.phases)
  recipe.check_inputs(c.data)
  readings.get_xla_options(c.compute.xla_options)
  _check_training(c)
  _check_finetuning(c)


def _check_training(c):
  """Checks where a run starts, its rates and its text."""
  o, steps = c.optimizer, sum(c.phases.steps)
  longest, most = max(c.phases.seq_length), c.model.max_positions
  pretraining, rate = c.task == 'pretraining', o.learning_rate
  continued = pretraining and c.init_from
  masked, theta = pretraining and c.objective.kind == 'mlm', c.model.rope_theta
  # With continue_from, the warm-up was in another run.
  warmup, held = 0 if c.continue_from else o.warmup_steps, steps
  if c.phases.learning_rates:
    _, warmup, held = readings.list_decays(c.phases)[-1]
  _refuse(
    {
      'resize_positions=True means nothing without init_from': (
        c.resize_positions and not c.init_from
      ),
      # Otherwise init_from sets the positions, and `transfer` checks the length.
      f'phases.seq_length={c.phases.seq_length} is longer than '
      f'model.max_positions={most}': (
        longest > most and (not c.init_from or c.resize_positions)
      ),
      f'optimizer.learning_rate={rate:g}: -1, as in configs/domain.py, is for '
      'pre-training with init_from, a trained model to start from; 0 is for '
      'fine-tuning and with init_from, and nothing else is below 0': (
        rate <= 0
        and not {0: c.init_from or not pretraining, -1: continued}.get(rate)
      ),
      'data.add_words and data.general are for pre-training with init_from, without '
      'data.dir': (
        (c.data.add_words or c.data.general) and (not continued or c.data.dir)
      ),
      f'optimizer.warmup_steps={o.warmup_steps} leaves none of the {steps} steps '
      'for the decay': (
        not c.phases.warmups and o.warmup_steps >= steps and not c.continue_from
      ),
      f'optimizer.decay_steps={o.decay_steps} needs optimizer.schedule=wsd, and is '
      f'at most {held - warmup}, the steps after the last warm-up': (
        o.decay_steps > max(held - warmup, 0)
        or (o.decay_steps and o.schedule != 'wsd')
      ),
      f'phases.mask_rates={c.phases.mask_rates} is for pre-training with masked '
      'tokens, without objective.initial_mask_rate': (
        c.phases.mask_rates and (not masked or c.objective.initial_mask_rate)
      ),
      f'phases.max_predictions={c.phases.max_predictions} cuts off some of '
      f'phases.mask_rates={c.phases.mask_rates}': (
        c.data.pack == 1
        and any(
          int(rate * length) > count
          for rate, length, count in zip(
            c.phases.mask_rates,
            c.phases.seq_length,
            c.phases.max_predictions,
            strict=False,
          )
        )
      ),
      f'model.rope_theta={theta:g} means nothing with phases.rope_thetas': (
        c.phases.rope_thetas
        and theta
        not in (FIELDS['model.rope_theta'].default, *c.phases.rope_thetas)
        and not (c.init_from or c.continue_from)
      ),
      f'data.rows={c.data.rows} needs objective.nsp=False; True needs data.rows=pairs': (
        pretraining and c.objective.nsp and c.data.rows != 'pairs'
      ),
      'continue_from is for pre-training without init_from': (
        c.continue_from and (c.init_from or not pretraining)
      ),
      'compute.last_layer=predicted is for pre-training with masked tokens; '
      'auto computes the last layer everywhere else': (
        c.compute.last_layer == 'predicted' and not masked
      ),
    }
  )


def _check_finetuning(c):
  f, bilstm, frozen = c.finetuning, c.model.bilstm, c.optimizer.freeze
  pretraining, classes = c.task == 'pretraining', c.task == 'classification'
  gpt, features = f.form == 'gpt', f.features != 'none'
  asked = f'finetuning.features={f.features}'
  _check_dropout('finetuning.head_dropout', f.head_dropout)
  _refuse(
    {
      f'model.bilstm={bilstm} means nothing in pre-training': (
        pretraining and bilstm
      ),
      f'finetuning.metrics is for classification, not for {c.task}': (
        f.metrics and not classes
      ),
      'finetuning.multi_label=True is for task=classification, without '
      'finetuning.glue, regression, metrics and form=gpt': (
        f.multi_label
        and (gpt or f.glue or f.regression or f.metrics or not classes)
      ),
      'finetuning.form=gpt is for classification without model.bilstm, not for '
      f'{c.task} with model.bilstm={bilstm}': gpt and (not classes or bilstm),
      f'{asked} is for classification and tagging, not for {c.task}': (
        features and c.task not in ('classification', 'tagging')
      ),
      f'{asked} needs model.bilstm, such as 768, to read them': (
        features and not bilstm
      ),
      f'{asked} freezes the model, so finetuning.form must be bert and '
      'finetuning.reinit_layers 0': features and (gpt or f.reinit_layers),
      f'optimizer.freeze={frozen!r} is not a regular expression': (
        not _is_expression(frozen)
      ),
      f'phases have {len(c.phases.steps)} entries; fine-tuning has one': (
        not pretraining and len(c.phases.steps) != 1
      ),
    }
  )


def check_model(c: config_dict.ConfigDict):
  """Checks the fields of a model alone, however it was trained."""
  check_fields(c, 'model.', 'objective.', 'data.vocab_size', 'phases.')
  for name in ('dropout', 'attention_dropout'):
    _check_dropout(f'model.{name}', c.model[name])
  m, o = c.model, c.objective
  _refuse(
    {
      f'model.body={m.body} needs {name}={value}, not {c[name]}': c[name]
      != value
      for name, value in recipes.BODIES[m.body].items()
    }
  )
  _refuse(
    {
      f'objective.kind={o.kind} needs objective.nsp=False: a language model '
      'reads one way, and predicts the next token only': (
        o.kind != 'mlm' and o.nsp
      ),
      f'objective.mask_mix={o.mask_mix} must be three shares that sum to 1': (
        len(o.mask_mix) != 3 or abs(sum(o.mask_mix) - 1) > 1e-6
      ),
      'model.attention_init=neighbours is for model.body=classic; wide is for '
      'both': (  # with init_from, no layer starts as it says
        m.attention_init == 'neighbours'
        and m.body == 'modern'
        and not c.init_from
      ),
      f'model.pooling={m.pooling} is for model.body=modern': (
        m.pooling != 'cls' and m.body != 'modern' and not c.init_from
      ),
      f'model.hidden_size={m.hidden_size} is not divisible by '
      f'model.num_heads={m.num_heads}': m.hidden_size % m.num_heads,
      f'heads of {m.hidden_size // m.num_heads} units are odd, and rotary '
      'positions turn pairs': (
        m.body == 'modern' and m.hidden_size // m.num_heads % 2
      ),
    }
  )


def _check_phases(phases):
  rates, warmups = phases.learning_rates, phases.warmups
  counts = {
    name: len(values)
    for name, values in phases.items()
    if values or FIELDS[f'phases.{name}'].default
  }
  one_each = len({*counts.values()}) == 1 and counts['steps']
  most, total = FIELDS['phases.steps'].allowed.most, sum(phases.steps)
  _refuse(
    {
      f'phases need one entry per phase in every field, got {counts}': (
        not one_each
      ),
      f'phases.learning_rates={rates} and phases.warmups={warmups} need each '
      'other': bool(rates) != bool(warmups),
      f'phases.steps={phases.steps} add up to {total}, the most is {most}': (
        total > most
      ),
      f'phases.batch_size={phases.batch_size} is not divisible by '
      f'phases.accumulate={phases.accumulate}': any(
        map(int.__mod__, phases.batch_size, phases.accumulate)
      ),
      f'phases.max_predictions={phases.max_predictions} is more than the '
      f'phases.seq_length={phases.seq_length} tokens of a sequence': any(
        map(int.__gt__, phases.max_predictions, phases.seq_length)
      ),
      f'phases.learning_rates={rates} must not begin with 0': (
        rates and not rates[0]
      ),
      f'phases.warmups={warmups} must be 0 where phases.learning_rates={rates} '
      'is 0': any(w and not x for x, w in zip(rates, warmups, strict=False)),
    }
  )
  for rate, warmup, steps in readings.list_decays(phases) if rates else ():
    if warmup >= steps:
      _fail(
        f'phases.warmups={warmups}, phases.steps={phases.steps}: of {steps} '
        f'updates with the rate {rate:g}, {warmup} for the warm-up leave none '
        'for the decay'
      )


def _check_dropout(name, rate):
  kept = dropout_rate.count_kept(rate)
  if kept == 0 or (rate and kept == 256):
    _fail(
      f'{name}={rate} drops {256 - kept} of 256 values; 1 of them, '
      f'{1 / 256:.4f}, is the least, {255 / 256:.4f} the most, and 0 is none'
    )


def _is_expression(text) -> bool:
  try:
    return bool(re.compile(text))
  except re.error:
    return False


def _refuse(rules):
  """Fails with the first message that applies, of {message: whether it does}."""
  for message, applies in rules.items():
    if applies:
      _fail(message)


def _fail(message):
  raise errors.UserError(
    f'{message}; change the config file or give --config.FIELD=VALUE.'
  )
