"""BERT-Mini, -Small or -Medium (arXiv 1908.08962) with the paper's recipe.

python -m bert_jax.main --config=configs/compact.py:small --workdir=DIR \\
  --config.data.input='text/*.txt'

mini (L=4, H=256, A=4; 11M parameters), small (L=4, H=512, A=8; 29M) and medium
(L=8, H=512, A=8; 42M), for one accelerator. Any other of that paper's 24 models is
named layers x hidden size x heads, such as 4x128x2. On a TPU or GPU add
`,dtype=bfloat16`, since float32 is several times slower there (docs/speed.md).
"""

from bert_jax import config


def get_config(arguments: str = 'small'):
  size, _, rest = arguments.partition(',')
  return config.apply_arguments(config.pretraining(size), rest)
