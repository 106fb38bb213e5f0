"""BERT-Large by LAMB with batches of 65,536 and 32,768 (arXiv 1904.00962).

python -m bert_jax.main --config=configs/lamb.py --workdir=DIR \\
  --config.data.input='books/*.txt,wiki/*'

7,038 updates at length 128, then 1,563 at 512: twice the sequences of BERT's
million updates of 256. Rates and warm-ups are those of NVIDIA's runs, the
linear decay is LAMB's authors' (docs/models.md).
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.pretraining('large')
  c.model.dtype = 'bfloat16'
  c.rng = 'rbg'  # the chip's own generator; see docs/speed.md
  c.phases.steps = (7038, 1563)
  c.phases.batch_size = (65_536, 32_768)
  c.phases.accumulate = (1, 2)  # so that 256 chips of v4 have the memory
  c.phases.max_predictions = (20, 80)
  c.phases.learning_rates = (6e-3, 4e-3)
  c.phases.warmups = (2000, 200)
  c.optimizer.algorithm = 'lamb'
  c.optimizer.decay_from = 'zero'
  c.checkpoint.every = 100
  c.eval.every = 500
  return config.apply_arguments(c, arguments)
