"""A size of the paper's table 6, with the recipe of BERT-Base.

python -m bert_jax.main --config=configs/table6.py:3x768x12 --workdir=DIR \\
  --config.data.input='books/*.txt,wiki/*'

Layers x hidden size x heads; any are possible. The paper's are 3x768x12, 6x768x3,
6x768x12, 12x768x12, 12x1024x16 and 24x1024x16, with held-out MLM perplexities of
5.84, 5.24, 4.68, 3.99, 3.54 and 3.23.
"""

from bert_jax import config


def get_config(arguments: str = '3x768x12'):
  size, _, rest = arguments.partition(',')
  c = config.pretraining(size)
  c.model.dtype = 'bfloat16'
  c.rng = 'rbg'  # the chip's own generator; see docs/speed.md
  return config.apply_arguments(c, rest)
