"""The paper's recipes, by size, as configs; profiles of implementations."""

import math
import re
import textwrap

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import fields, readings

# layers, hidden size, attention heads; the MLP is four times the hidden size.
SIZES = {
  'tiny': (2, 128, 2),
  'mini': (4, 256, 4),
  'small': (4, 512, 8),
  'medium': (8, 512, 8),
  'base': (12, 768, 12),
  'large': (24, 1024, 16),
}

# What a body needs: no export of ModernBERT's can name another mix, and to BERT's
# some fields mean nothing.
_OF_MODERN = 'model.window', 'model.global_every', 'model.local_rope_theta'
_OF_MODERN += 'model.rope_theta', 'phases.rope_thetas'
BODIES = {
  'classic': {name: fields.FIELDS[name].default for name in _OF_MODERN},
  'modern': {
    'model.norm': 'pre',
    'model.activation': 'gelu',
    'model.bilstm': 0,
    'objective.kind': 'mlm',
    'objective.nsp': False,
    'finetuning.form': 'bert',
  },
}

# About 4,500 predicted tokens: the loss has a standard error of 0.04 nats.
_FEWEST_EVALUATED = 500

_OF_DOMAIN = 0.064  # rate times hidden size

# {kind of fine-tuning: learning rate and epochs} of BERT-Base and BERT-Large:
# the paper's (sections 4.1 to 4.4, appendix A.3), which gives none for tags and
# for the user's own files.
_PAPER = {
  'glue': (2e-5, 3.0),
  'classification': (3e-5, 3.0),
  'tagging': (5e-5, 3.0),
  'choice': (2e-5, 3.0),
  'spans': (5e-5, 3.0),
  'unanswerable': (5e-5, 2.0),
}


def pretraining(size: str) -> config_dict.ConfigDict:
  """Returns the paper's recipe (appendix A.2) for a size, as in `read_size`."""
  c = fields.declare_fields()
  set_size(c, size)
  return c


def choose_rate(c: config_dict.ConfigDict) -> float:
  """Returns the rate of a config; -1 is by the size of the model: docs/domain.md."""
  rate = c.optimizer.learning_rate
  return float(f'{_OF_DOMAIN / c.model.hidden_size:.1e}') if rate < 0 else rate


def read_size(size: str) -> tuple[int, int, int]:
  """Returns layers, hidden size and heads of a name of `SIZES`, or of 3x768x12."""
  if size in SIZES:
    return SIZES[size]
  sizes = re.fullmatch(r'(\d+)x(\d+)x(\d+)', size)
  if not sizes:
    raise errors.UserError(
      f'size={size!r} is not one of {", ".join(SIZES)}, nor layers x hidden size x '
      'heads, such as 3x768x12.'
    )
  return tuple(map(int, sizes.groups()))


def set_size(c: config_dict.ConfigDict, size: str):
  """Sets the fields in which sizes differ."""
  layers, hidden, heads = read_size(size)
  sizes = {'num_layers': layers, 'hidden_size': hidden, 'num_heads': heads}
  c.model.update(sizes, mlp_size=4 * hidden)
  # Only where it has been shown to help: docs/plateau.md.
  small = hidden <= 512
  c.model.attention_init = 'neighbours' if small else 'random'
  c.objective.unigram_bias = small
  c.objective.word_vectors = small
  if c.model.body == 'modern':
    set_body(c, 'modern')


def set_body(c: config_dict.ConfigDict, body: str):
  """Gives a size of BERT another body of the same cost: docs/modern.md."""
  if body != 'modern':
    raise errors.UserError(
      f'body={body} is not modern; without it, it is BERT.'
    )
  # What else the body needs was chosen by name, and is refused: `config_check`.
  own = 'model.norm', 'model.activation', 'objective.nsp'
  c.update_from_flattened_dict({name: BODIES[body][name] for name in own})
  c.model.update(body=body, norm_epsilon=1e-5, attention_dropout=0.0)
  if c.model.attention_init == 'neighbours':
    c.model.attention_init = 'wide'
  # A gate makes three matrices of two.
  c.model.mlp_size = 8 * max(1, round(c.model.mlp_size / 12))
  c.data.rows = 'full_sentences'


def set_steps(c: config_dict.ConfigDict, steps: int):
  """Sets the updates of all phases together; they and warm-ups keep their shares.

  Runs are logged, evaluated and saved five times at least; short ones are
  evaluated on fewer rows, or that would take longer than training.
  """
  old, total = c.phases.steps, sum(c.phases.steps)
  new = [max(1, round(n * steps / total)) for n in old]
  new[old.index(max(old))] += steps - sum(new)  # what rounding left
  if min(new) < 1:
    raise errors.UserError(f'steps={steps} is too few for {len(old)} phases.')
  c.phases.steps = tuple(new)
  c.phases.warmups = tuple(n * steps // total for n in c.phases.warmups)
  for name in ('warmup_steps', 'decay_steps'):
    c.optimizer[name] = c.optimizer[name] * steps // total
  for group in (c.eval, c.log, c.checkpoint):
    group.every = min(group.every, max(steps // 5, 1))
  rows = c.eval.sequences * steps // total
  c.eval.sequences = min(c.eval.sequences, max(rows, _FEWEST_EVALUATED))


def finetuning(size: str = 'base') -> config_dict.ConfigDict:
  """Returns the paper's recipe (appendix A.3) for classification."""
  c = pretraining(size)
  c.task = 'classification'
  c.finetuning.head_bias = 'auto'
  c.data.heldout = 0.1
  phase = {'seq_length': 128, 'steps': 1, 'batch_size': 32}
  phase |= {'accumulate': 1, 'max_predictions': 1}
  c.phases.update({name: (value,) for name, value in phase.items()})
  # Filled in by the model's size and the data, see `finetuning.starting`.
  c.optimizer.update(learning_rate=0.0, warmup_steps=0)
  c.eval.every = 0
  c.checkpoint.update(every=500, keep=1, keep_every=0)
  return c


def get_paper(c: config_dict.ConfigDict) -> dict[str, float]:
  """Returns the paper's rate and epochs by field; {} for pre-training."""
  if c.task == 'pretraining':
    return {}
  kind = 'unanswerable' if c.finetuning.unanswerable else c.task
  kind = 'glue' if c.finetuning.glue else kind
  # The paper has no other tasks; they get the values for classification.
  rate, epochs = _PAPER.get(kind, _PAPER['classification'])
  return {'optimizer.learning_rate': rate, 'finetuning.epochs': epochs}


def describe(c: config_dict.ConfigDict) -> str:
  """Returns the fields that decide the result and are no defaults of the task."""
  default, unused = finetuning(), ['eval.', 'log.', 'checkpoint.']
  if c.task == 'pretraining':
    default = fields.declare_fields()
    unused.append('finetuning.')
  if c.phases.learning_rates:
    unused += ['optimizer.learning_rate', 'optimizer.warmup_steps']
  if set(c.phases.accumulate) == {1}:
    unused.append('phases.accumulate')
  known = readings.flatten(default)
  shown = [
    f'{name}={value!r}'
    for name, value in readings.flatten(c).items()
    if value != known[name] and not name.startswith(tuple(unused))
  ]
  how = {'initial_indent': '  ', 'subsequent_indent': '  ', 'width': 80}
  how |= {'break_long_words': False, 'break_on_hyphens': False}
  return textwrap.fill(' '.join(shown), **how)


def smoke(c: config_dict.ConfigDict):
  """Shrinks a config so that it runs in a minute, but still uses every part."""
  c.model.update(num_layers=2, hidden_size=64, num_heads=2, mlp_size=128)
  # The modern body's kernels for TPUs have no dropout.
  in_attention = 0.1 if c.model.body == 'classic' else 0.0
  c.model.update(dropout=0.1, attention_dropout=in_attention)
  c.data.update(vocab_size=1500, max_documents=200, passes=1, shards=2)
  c.finetuning.epochs = 0.5
  n = len(c.phases.steps)
  c.phases.steps = (12,) * n
  c.phases.batch_size = (8,) * n
  c.phases.accumulate = tuple(math.gcd(8, x) for x in c.phases.accumulate)
  if max(c.phases.seq_length) > 512:
    for name in ('seq_length', 'max_predictions'):
      c.phases[name] = tuple(x // 16 for x in c.phases[name])
  c.optimizer.warmup_steps = 4 if c.task == 'pretraining' else 0
  c.optimizer.decay_steps = min(c.optimizer.decay_steps, 12)
  c.phases.warmups = tuple(min(4, steps) for steps in c.phases.warmups)
  c.eval.update(every=10, sequences=32)
  c.log.every = 2
  c.checkpoint.update(every=6, keep_every=0)


# The details in which three BERT implementations differ, as fields of profiles;
# docs/fidelity.md compares them, and says what they do not cover. First, the
# paper (arXiv 1810.04805) and, where it gives no details, Google's code, except
# what depends on the number of TPU cores. These are the defaults.
_DETAILS = (
  'model.activation model.norm_epsilon model.initializer model.attention_init '
  'model.mask_value objective.unigram_bias objective.sampled_words '
  'objective.word_vectors finetuning.head_bias optimizer.epsilon '
  'optimizer.bias_correction optimizer.clip_unit optimizer.decay_from '
  'data.strip_accents data.negatives'
).split()
_PAPER_PROFILE = {name: fields.FIELDS[name].default for name in _DETAILS}
PROFILES = {
  'paper': _PAPER_PROFILE,
  # google-research/bert: modeling.py, optimization.py. Set phases.accumulate
  # to the number of TPU cores to imitate.
  'google': {
    **_PAPER_PROFILE,
    'optimizer.bias_correction': False,
    'optimizer.clip_unit': 'micro_batch',
    'optimizer.decay_from': 'zero',
    'data.strip_accents': 'as_lowercase',
    'data.negatives': 'uniform',
  },
  # Hugging Face transformers' BERT in PyTorch, its linear schedule, and the
  # defaults of torch.optim.AdamW.
  'hf': {
    **_PAPER_PROFILE,
    'model.activation': 'gelu',
    'model.initializer': 'normal',
    'model.mask_value': -3.4028234663852886e38,  # the least float32
    'optimizer.epsilon': 1e-8,
    'data.strip_accents': 'as_lowercase',
    'data.negatives': 'uniform',
  },
}
