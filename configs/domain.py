"""A trained model on the text of a domain: docs/domain.md.

python -m bert_jax.main --config=configs/domain.py --workdir=DIR \\
  --config.init_from=hf:google-bert/bert-base-uncased \\
  --config.data.input='medical/*.txt' --config.data.add_words=500 \\
  --config.data.general='wiki/*.txt'

Sizes, vocabulary and casing are the model's. The rate follows from its hidden size:
5e-4 for Tiny, 2.5e-4 for Mini, 1.2e-4 for Small and Medium, 8.3e-5 for BASE. That is
small, so that little of the general text is forgotten: a quarter of the peak at which
Tiny and Mini are pre-trained here. Only Tiny's has been tried (docs/domain.md).
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.pretraining('base')
  c.phases.seq_length = (128,)
  c.phases.steps = (2000,)
  c.phases.batch_size = (32,)
  c.phases.accumulate = (1,)
  c.phases.max_predictions = (20,)
  c.optimizer.learning_rate = -1.0  # by the size of the model
  c.optimizer.warmup_steps = 200
  c.eval.every = 500
  c.eval.sequences = 1000
  c.checkpoint.every = 500
  c.checkpoint.keep_every = 0
  return config.apply_arguments(c, arguments)
