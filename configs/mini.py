"""BERT-Mini (L=4, H=256, A=4; 11M parameters) with the paper's recipe.

python -m bert_jax.main --config=configs/mini.py --workdir=DIR \\
  --config.data.input='text/*.txt'

One of the small models of arXiv 1908.08962, for one accelerator: on a TPU or GPU
add `:dtype=bfloat16`, since float32 is several times slower there
(docs/speed.md).
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.pretraining('mini')
  return config.apply_arguments(c, arguments)
