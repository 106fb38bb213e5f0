"""BERT-Base (arXiv 1810.04805, section 3 and appendix A.2).

python -m bert_jax.main --config=configs/base.py --workdir=DIR \\
  --config.data.input='books/*.txt,wiki/*'

110M parameters; the paper's runs took 4 days on 4 Cloud TPUs (16 chips) and
reached a held-out MLM perplexity of 3.99 (table 6).
900,000 steps at length 128, then 100,000 at 512, in one run.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.pretraining('base')
  c.model.dtype = 'bfloat16'
  c.rng = 'rbg'  # the chip's own generator; see docs/speed.md
  return config.apply_arguments(c, arguments)
