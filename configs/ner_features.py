"""Named entities from the features of a frozen model (section 5.3, table 7).

python -m bert_jax.main --config=configs/ner_features.py:concat_last_4 \\
  --workdir=DIR --config.init_from=MODEL \\
  --config.data.input='train=a.conll,dev=b.conll'

embeddings, second_to_last, last, weighted_sum_last_4, concat_last_4 or
weighted_sum_all: hidden states of a cased model, which a two-layer BiLSTM of
768 units reads; no parameter of the model is trained. Two models, MODEL,MODEL,
are read side by side, as ELMo is: one from left to right, one from right to
left. On CoNLL-2003 the paper got, from BERT-Base, a dev F1 of 91.0, 95.6, 94.9,
95.9, 96.1 and 95.5, in this order; fine-tuning it, 96.4. It does not say at
which learning rate and for how long; both are ours.
"""

from bert_jax import config


def get_config(arguments: str = 'concat_last_4'):
  layers, _, rest = arguments.partition(',')
  if layers not in config.FIELDS['finetuning.features'].allowed:
    layers, rest = 'concat_last_4', arguments
  c = config.finetuning()
  c.task = 'tagging'
  c.data.input = 'train=train.conll,dev=dev.conll'
  c.finetuning.features = layers
  c.model.bilstm = 768
  c.finetuning.epochs = 20.0
  c.optimizer.learning_rate = 1e-3
  return config.apply_arguments(c, rest)
