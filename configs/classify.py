"""Classification or regression of texts, or pairs, in files of your own.

python -m bert_jax.main --config=configs/classify.py --workdir=DIR \\
  --config.init_from=MODEL --config.data.input='train=a.csv,dev=b.csv' \\
  --config.data.text=review --config.data.label=stars

CSV, TSV or JSON with named columns; data.pair names the second text of a pair.
Without a dev file, a tenth of each class (data.heldout) is kept for it.
Numbers are learnt with finetuning.regression=True, several labels of a text, in
a list or in columns of 0 and 1, with finetuning.multi_label=True. Batches of 32, 3 epochs and a
learning rate of 3e-5; more of both for models smaller than BERT-Base. Expect a
score clearly above the constant prediction's, which results.json has beside it.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.finetuning()
  c.data.input = 'train=train.csv,dev=dev.csv'
  c.data.text = 'text'
  c.data.label = 'label'
  return config.apply_arguments(c, arguments)
