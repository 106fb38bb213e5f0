"""A task of KLUE, understanding Korean (arXiv 2105.09680), as published.

python -m bert_jax.main --config=configs/klue.py:ynat --workdir=DIR \\
  --config.init_from=MODEL --config.data.input=klue_benchmark/ynat-v1.1

ynat, topics of headlines (macro-F1); sts, similarity from 0 to 5 (Pearson
correlation, and F1 of 3 and more); nli (accuracy); re, the relation of two names
in a sentence (micro-F1 without no_relation); ner, names in sentences, by character
(entity F1); mrc, answers in passages, or that there is none (exact match, F1). The
names of re follow the sentence as a second text; KLUE's own code puts markers around
them instead. With these, its BERT-Base gets on test: YNAT 85.5, STS 90.9 and 82.8, NLI
81.6, RE 66.4, NER 84.8 (the mean of the kinds), MRC an exact match of 62.3, from 3 to
5 epochs at 1e-5 to 5e-5.
"""

from bert_jax import config, errors

# {task: the fields that differ from those of `config.finetuning`}
TASKS = {
  'ynat': {
    'data.input': 'klue_benchmark/ynat-v1.1',
    'data.text': 'title',
    'data.label': 'label',
    'finetuning.metrics': 'macro_f1,accuracy',
  },
  'sts': {
    'data.input': 'klue_benchmark/klue-sts-v1.1',
    'data.text': 'sentence1',
    'data.pair': 'sentence2',
    'data.label': 'labels.real-label',
    'finetuning.regression': True,
    'finetuning.metrics': 'pearson,f1_at_3',
  },
  'nli': {
    'data.input': 'klue_benchmark/klue-nli-v1.1',
    'data.text': 'premise',
    'data.pair': 'hypothesis',
    'data.label': 'gold_label',
    'finetuning.metrics': 'accuracy,macro_f1',
  },
  're': {
    'data.input': 'klue_benchmark/klue-re-v1.1',
    'data.text': 'sentence',
    'data.pair': 'subject_entity.word + object_entity.word',
    'data.label': 'label',
    'finetuning.metrics': 'relation_f1,accuracy',
    'phases.seq_length': (256,),
  },
  'ner': {
    'task': 'tagging',
    'data.input': 'klue_benchmark/klue-ner-v1.1',
    'phases.seq_length': (256,),
  },
  'mrc': {
    'task': 'spans',
    'data.input': 'klue_benchmark/klue-mrc-v1.1',
    'phases.seq_length': (512,),
    'finetuning.head_dropout': 0.0,
    'finetuning.outputs': 2,
    'finetuning.unanswerable': True,
  },
}


def get_config(arguments: str = 'ynat'):
  name, _, rest = arguments.partition(',')
  if name not in TASKS:
    raise errors.UserError(f'{name!r} is not one of {", ".join(TASKS)}.')
  c = config.finetuning()
  c.update_from_flattened_dict(TASKS[name])
  return config.apply_arguments(c, rest)
