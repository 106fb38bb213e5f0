"""Classification or regression of texts, or pairs, in files of your own.

python -m bert_jax.main --config=configs/classify.py --workdir=DIR \\
  --config.init_from=MODEL --config.data.input='train=a.csv,dev=b.csv' \\
  --config.data.text=review --config.data.label=stars

CSV, TSV or JSONL with named columns; data.pair names the second text of a pair.
Without a dev file, a tenth of the training rows (data.heldout) is kept for it.
Numbers are learnt with finetuning.regression=True. Expect a score clearly above
that of a constant prediction, which results.json has beside it.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.finetuning()
  c.data.input = 'train=train.csv,dev=dev.csv'
  c.data.text = 'text'
  c.data.label = 'label'
  c.optimizer.learning_rate = 3e-5
  return config.apply_arguments(c, arguments)
