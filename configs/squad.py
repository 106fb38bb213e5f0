"""Answers to questions, as parts of passages: SQuAD (sections 4.2 and 4.3).

python -m bert_jax.main --config=configs/squad.py --workdir=DIR \\
  --config.init_from=MODEL --config.data.input='train=train-v1.1.json,dev=dev-v1.1.json'

The paper: 3 epochs of batches of 32 at 5e-5; windows of 384 tokens every 128 as in
Google's run_squad.py, which itself takes 2 epochs of 12 at 3e-5. BERT-Base gets
on dev of 1.1 an F1 of 88.5 and an exact match of 80.8 (88.4 and 81.3 by Google's).
`:v2` is SQuAD 2.0, where a question may have no answer: 2 epochs of batches of
48; BERT-Large gets an F1 of 81.9 and an exact match of 78.7 on dev. The same files
in other languages work: XQuAD, KorQuAD.
"""

from bert_jax import config


def get_config(arguments: str = ''):
  variant, _, rest = arguments.partition(',')
  c = config.finetuning()
  c.task = 'spans'
  c.data.input = 'train=train.json,dev=dev.json'
  c.phases.seq_length = (384,)
  c.finetuning.head_dropout = 0.0  # none in Google's code
  c.finetuning.outputs = 2
  if variant == 'v2':
    c.finetuning.unanswerable = True
    c.phases.batch_size = (48,)
    arguments = rest
  return config.apply_arguments(c, arguments)
