"""`README.md` of an exported fine-tuned model."""

import json
from collections.abc import Sequence

from ml_collections import config_dict

import bert_jax
from bert_jax import config as config_lib
from bert_jax.runtime import markdown

# Sections of the config that the model does not depend on.
_LEFT_OUT = ('log.', 'checkpoint.', 'eval.', 'profile_steps', 'compute.')

# {task: (pipeline, class of transformers, what is counted, and drawn)}
_KINDS = {
  'classification': (
    'text-classification', 'SequenceClassification', 'rows', 'rows'
  ),
  'tagging': (
    'token-classification', 'TokenClassification', 'words', 'sentences'
  ),
  'choice': ('multiple-choice', 'MultipleChoice', 'rows', 'rows'),
  'spans': (
    'question-answering', 'QuestionAnswering', 'questions', 'questions'
  ),
}  # fmt: skip


def make_card(
  config: config_dict.ConfigDict,
  labels: Sequence[str],
  results: dict,
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata.

  Args:
    config: the experiment.
    labels: names of the classes or tags; empty for a number.
    results: from `outcome.write_results`.
    parameters: number of parameters of the model.
  """
  pipeline, auto, unit, drawn = _KINDS[config.task]
  name = config.finetuning.glue or config.data.input
  source = f'`{config.init_from}`' if config.init_from else 'random weights'
  head = ('split', unit, 'metric', 'value', '95 % interval', 'constant')
  recipe = [
    (field, f'`{json.dumps(value)}`')
    for field, value in config_lib.flatten(config).items()
    if not field.startswith(_LEFT_OUT)
  ]
  problem = results['problem']
  parts = [
    _METADATA.format(pipeline),
    f'# BERT fine-tuned on {name}',
    f'{parameters:,} parameters, fine-tuned from {source} on '
    f'{results["counts"]["train"]:,} {unit} by bert_jax {bert_jax.__version__}. '
    f'It predicts {_describe_prediction(config, labels)}.',
    '## Evaluation',
    markdown.make_table(head, _list_scores(results)),
    f'Intervals are bootstrapped over the {drawn}; another seed may differ by '
    f'more. `constant` {_describe_constant(config, labels)}.'
    + (f' **Warning: {problem}.**' if problem else ''),
    '## How to load it',
    _LOADING.format(auto),
    '## Recipe',
    markdown.make_table(('field', 'value'), recipe),
  ]
  return '\n\n'.join(parts) + '\n'


_METADATA = """---
# FILL IN the licence under which you publish this model, such as apache-2.0;
# those of the data and of the pre-trained model matter too.
license: unknown
library_name: transformers
pipeline_tag: {}
tags:
- bert
---"""

_LOADING = """```python
from transformers import AutoModelFor{0}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('THIS_FOLDER')
model = AutoModelFor{0}.from_pretrained('THIS_FOLDER')
```

Without transformers: `python -m bert_jax.predict --model=THIS_FOLDER
--input=FILE --output=FILE`."""


def _describe_prediction(config, labels) -> str:
  if config.task == 'choice':
    return 'which of several texts goes best with another'
  if config.task == 'spans':
    answer = 'the answer to a question, as a part of a passage'
    none = ', or that there is none' if config.finetuning.unanswerable else ''
    return answer + none
  return ', '.join(f'`{label}`' for label in labels) or 'a number'


def _describe_constant(config, labels) -> str:
  if config.finetuning.unanswerable:
    return 'never answers'
  if config.task == 'classification' and not labels:
    return 'always predicts the mean of the training rows'
  return 'always predicts what is commonest in training'


def _list_scores(results) -> list[tuple]:
  return [
    (
      split,
      f'{results["counts"][split]:,}',
      metric,
      f'{value:.4f}',
      _interval(x['intervals'].get(metric)),
      f'{x["baseline"][metric]:.4f}',
    )
    for split, x in ({'dev': results} | results['other']).items()
    for metric, value in x['metrics'].items()
  ]


def _interval(bounds) -> str:
  return '{:.4f} to {:.4f}'.format(*bounds) if bounds else ''
