"""BERT-Tiny (L=2, H=128, A=2) on the prose that comes with Python, in minutes.

python -m bert_jax.main --config=configs/tiny.py --workdir=/tmp/bert_tiny

Needs no data and no network. For text of your own add
--config.data.input='FILES'. Expect, held out, an MLM accuracy of 37 to 40 % and an
NSP accuracy of 80 to 85 %, in 7 minutes on two cores with 512-bit vectors (AVX-512),
in 16 on two with AVX2.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.pretraining('tiny')
  # For so little text, 8,000 pieces need a sixth more FLOPs for the same loss per
  # character.
  c.data.vocab_size = 4000
  c.data.shards = 16
  # Nothing to regularise in a few epochs of so small a model: with the paper's
  # 0.1 the held-out MLM loss ended 0.4 nats higher.
  c.model.dropout = 0.0
  c.model.attention_dropout = 0.0
  # The documents are short: at length 128 a quarter would be padding.
  c.phases.seq_length = (64,)
  c.phases.steps = (8400,)
  c.phases.batch_size = (32,)
  c.phases.accumulate = (1,)
  # Many predictions, each among a sample of the words (docs/plateau.md).
  c.objective.initial_mask_rate = 0.4
  c.objective.sampled_words = 1000
  c.phases.max_predictions = (26,)
  c.optimizer.learning_rate = 2e-3
  c.optimizer.warmup_steps = 400
  c.eval.every = 1680
  c.log.every = 8400  # the last; lines are printed now and then, too
  c.eval.sequences = 1000
  c.checkpoint.every = 1680
  c.checkpoint.keep_every = 0
  return config.apply_arguments(c, arguments)
