"""BERT for a budget of 15 minutes to a day.

python -m bert_jax.main --config=configs/budget.py:cpu_quarter --workdir=DIR \\
  --config.data.input='text/*.txt'

budget         shape   FLOPs    on          hours        dollars    MLM
cpu_quarter    2x128   7.29e13  one core    0.4          -          3.73, 34.1 %
cpu_hour       2x256   4.45e14  two cores   1.2          -          3.24, 40.6 %
gpu_half_hour  8x512   4.54e17  h100:1      0.20 to 0.51 2.2 to 5.7 not run
v5e4_day       12x768  2.40e19  v5litepod-4 11 to 23     53 to 110  not run

MLM is the held-out loss and accuracy at length 64 on novels and Wikipedia
(docs/real_run.md). FLOPs are those that the log counts; hours are measured on CPU
cores with 512-bit vectors (AVX2 takes about twice as long), otherwise preflight's, as are dollars, with list prices of 2025. An H200 would
take 20 minutes for gpu_half_hour, at the speed of a shorter run (docs/gpu.md). The
paper's BASE, which v5e4_day is, has a held-out loss of 1.38 (a perplexity of 3.99).
"""

from bert_jax import config, errors

# Two cores: 8,000 pieces, as few FLOPs do not teach more; rows of 64, which cost
# less than half of 128, until the last 3 % of the updates; no dropout in two
# epochs. At first 40 % of the tokens are predicted, among a sample of the words,
# which teaches more for the same FLOPs (docs/plateau.md). As that share falls to
# 15 %, phases have room for fewer predictions; one decay spans them.
_CPU = {
  'data.vocab_size': 8000,
  'data.passes': 1,
  'data.shards': 16,
  'model.dropout': 0.0,
  'model.attention_dropout': 0.0,
  'objective.initial_mask_rate': 0.4,
  'objective.sampled_words': 2000,
  'phases.seq_length': (64, 64, 64, 128),
  'phases.batch_size': (32, 32, 32, 32),
  'phases.accumulate': (1, 1, 1, 1),
  'phases.max_predictions': (26, 20, 15, 20),
  # A new warm-up at 128, whose positions from 64 on are untrained.
  'phases.warmups': (400, 0, 0, 100),
  'eval.sequences': 4000,
  'checkpoint.keep_every': 0,
}
_ACCELERATOR = {
  'model.dtype': 'bfloat16',
  'rng': 'rbg',  # the chip's own generator; see docs/speed.md
}
_BUDGETS = {
  'cpu_quarter': {
    **_CPU,
    'phases.steps': (4750, 4750, 4750, 500),
    'phases.learning_rates': (2e-3, 0.0, 0.0, 1e-3),
    **dict.fromkeys(('eval.every', 'log.every', 'checkpoint.every'), 1425),
  },
  'cpu_hour': {
    **_CPU,
    # MLPs of 4 x 256 cost more than they bring (docs/plateau.md).
    'model.mlp_size': 256,
    'phases.steps': (13_800, 13_800, 13_800, 1000),
    'phases.learning_rates': (1.1e-3, 0.0, 0.0, 1e-3),
    **dict.fromkeys(('eval.every', 'log.every', 'checkpoint.every'), 3450),
  },
  'gpu_half_hour': {
    **_ACCELERATOR,
    'objective.initial_mask_rate': 0.3,
    'data.vocab_size': 16_000,
    'phases.seq_length': (128,),
    'phases.steps': (40_000,),
    'phases.batch_size': (512,),
    'phases.accumulate': (1,),
    'phases.max_predictions': (40,),
    'optimizer.learning_rate': 5e-4,
    'optimizer.warmup_steps': 2000,
    'eval.every': 4000,
  },
  'v5e4_day': _ACCELERATOR,  # configs/base.py: its million updates take a day
}
_SIZES = {'cpu_hour': '2x256x4', 'gpu_half_hour': 'medium', 'v5e4_day': 'base'}


def get_config(arguments: str = 'cpu_quarter'):
  budget, _, rest = arguments.partition(',')
  if budget not in _BUDGETS:
    raise errors.UserError(
      f'{budget!r} is not one of {", ".join(_BUDGETS)}; give it first: '
      'configs/budget.py:cpu_hour,smoke'
    )
  c = config.pretraining(_SIZES.get(budget, 'tiny'))
  c.update_from_flattened_dict(_BUDGETS[budget])
  return config.apply_arguments(c, rest)
