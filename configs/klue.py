"""A task of KLUE, understanding Korean (arXiv 2105.09680), as published.

python -m bert_jax.main --config=configs/klue.py:ner --workdir=DIR \\
  --config.init_from=MODEL --config.data.input=klue_benchmark/klue-ner-v1.1

ner, names in sentences, by character; mrc, answers in passages, or that there is
none. KLUE's BERT-Base gets an entity F1 of 84.8 (the mean of the kinds) and an exact
match of 62.3, from 3 to 5 epochs at 1e-5 to 5e-5.
"""

from bert_jax import config, errors

# {task: the fields that differ from those of `config.finetuning`}
TASKS = {
  'ner': {
    'task': 'tagging',
    'data.input': (
      'train=klue_benchmark/klue-ner-v1.1/klue-ner-v1.1_train.tsv,'
      'dev=klue_benchmark/klue-ner-v1.1/klue-ner-v1.1_dev.tsv'
    ),
    'phases.seq_length': (256,),
  },
  'mrc': {
    'task': 'spans',
    'data.input': (
      'train=klue_benchmark/klue-mrc-v1.1/klue-mrc-v1.1_train.json,'
      'dev=klue_benchmark/klue-mrc-v1.1/klue-mrc-v1.1_dev.json'
    ),
    'phases.seq_length': (512,),
    'finetuning.head_dropout': 0.0,
    'finetuning.outputs': 2,
    'finetuning.unanswerable': True,
  },
}


def get_config(arguments: str = 'ner'):
  name, _, rest = arguments.partition(',')
  if name not in TASKS:
    raise errors.UserError(f'{name!r} is not one of {", ".join(TASKS)}.')
  c = config.finetuning()
  c.update_from_flattened_dict(TASKS[name])
  return config.apply_arguments(c, rest)
