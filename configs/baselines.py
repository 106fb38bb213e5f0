"""What the paper compares BERT with (arXiv 1810.04805, section 5.1, table 5).

python -m bert_jax.main --config=configs/baselines.py:ltr --workdir=DIR \\
  --config.data.input='books/*.txt,wiki/*'

no_nsp is BERT-Base without next sentence prediction; ltr reads from left to
right only and predicts the next token, like GPT; rtl reads from right to left,
and makes with ltr the pair of an ELMo-style model. The rest is the recipe of
BERT-Base, the data too. docs/models.md says how to fine-tune each, and what
the paper got: on MNLI 83.9 (no_nsp) and 82.1 (ltr), BERT-Base 84.4.
"""

from bert_jax import config, errors

_OBJECTIVES = {'no_nsp': 'mlm', 'ltr': 'ltr', 'rtl': 'rtl'}


def get_config(arguments: str = 'no_nsp'):
  name, _, rest = arguments.partition(',')
  if name not in _OBJECTIVES:
    raise errors.UserError(
      f'{name!r} is not one of {", ".join(_OBJECTIVES)}; give it first: '
      'configs/baselines.py:ltr,smoke'
    )
  c = config.pretraining('base')
  c.model.dtype = 'bfloat16'
  c.rng = 'rbg'  # the chip's own generator; see docs/speed.md
  c.objective.kind = _OBJECTIVES[name]
  c.objective.nsp = False
  return config.apply_arguments(c, rest)
