"""Which of several texts continues another: SWAG (section 4.4).

python -m bert_jax.main --config=configs/swag.py --workdir=DIR \\
  --config.init_from=MODEL --config.data.input='train=train.csv,dev=val.csv'

The paper: batches of 16, 3 epochs, a learning rate of 2e-5; BERT-Base then gets
an accuracy of 81.6 on dev, chance 25. Files of your own: JSONL with, say, the
fields context, question, choices (a list) and label (its number from 0), named
by data.text, data.pair (may be empty), data.choices and data.label.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  c = config.finetuning()
  c.task = 'choice'
  c.data.input = 'train=train.csv,dev=val.csv'
  c.data.text = 'sent1'
  c.data.pair = 'sent2'
  c.data.choices = 'ending'  # ending0 to ending3
  c.data.label = 'label'
  c.phases.batch_size = (16,)
  return config.apply_arguments(c, arguments)
