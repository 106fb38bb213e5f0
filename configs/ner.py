"""Named entities, or other tags of words, in CoNLL files (section 5.3).

python -m bert_jax.main --config=configs/ner.py --workdir=DIR \\
  --config.init_from=MODEL --config.data.input='train=a.conll,dev=b.conll'

The paper: a cased model, a tag at the first piece of each word, as much context
of the document as fits, no CRF; on CoNLL-2003 BERT-Base gets an entity F1 of 96.4
on dev (mean of five restarts) and 92.4 on test. Without documents in the files,
expect 2 less. Batches of 32, 3 epochs and a learning rate of 5e-5, more of both
for models smaller than BERT-Base.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.finetuning()
  c.task = 'tagging'
  c.data.input = 'train=train.conll,dev=dev.conll'
  return config.apply_arguments(c, arguments)
