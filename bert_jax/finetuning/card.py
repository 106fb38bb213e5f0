"""`README.md` of an exported fine-tuned model."""

import json

from ml_collections import config_dict

import bert_jax
from bert_jax import config as config_lib
from bert_jax.finetuning import dataset

# Sections of the config that the model does not depend on.
_LEFT_OUT = ('log.', 'checkpoint.', 'eval.', 'profile_steps', 'compute.')


def make_card(
  config: config_dict.ConfigDict,
  data: dataset.Data,
  results: dict,
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata.

  Args:
    config: the experiment.
    data: its data.
    results: from `finish.make_results`.
    parameters: number of parameters of the model.
  """
  name = config.finetuning.glue or config.data.input
  source = f'`{config.init_from}`' if config.init_from else 'random weights'
  classes = ', '.join(f'`{label}`' for label in data.labels) or 'a number'
  head = ('split', 'rows', 'metric', 'value', '95 % interval', 'constant')
  scores = [
    (
      split,
      f'{results["counts"][split]:,}',
      metric,
      f'{value:.4f}',
      '{:.4f} to {:.4f}'.format(*x['intervals'][metric]),
      f'{x["baseline"][metric]:.4f}',
    )
    for split, x in ({'dev': results} | results['other']).items()
    for metric, value in x['metrics'].items()
  ]
  recipe = [
    (field, f'`{json.dumps(value)}`')
    for field, value in config_lib.flatten(config).items()
    if not field.startswith(_LEFT_OUT)
  ]
  problem = results['problem']
  parts = [
    _METADATA,
    f'# BERT fine-tuned on {name}',
    f'{parameters:,} parameters, fine-tuned from {source} on '
    f'{results["counts"]["train"]:,} rows by bert_jax {bert_jax.__version__}. '
    f'It predicts {classes}.',
    '## Evaluation',
    _table(head, scores),
    'Intervals are bootstrapped over the rows; another seed may differ by '
    'more. `constant` always predicts what is commonest in training.'
    + (f' **Nothing was learnt: {problem}.**' if problem else ''),
    '## How to load it',
    _LOADING,
    '## Recipe',
    _table(('field', 'value'), recipe),
  ]
  return '\n\n'.join(parts) + '\n'


_METADATA = """---
# FILL IN the licence under which you publish this model, such as apache-2.0;
# those of the data and of the pre-trained model matter too.
license: unknown
library_name: transformers
pipeline_tag: text-classification
tags:
- bert
---"""

_LOADING = """```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('THIS_FOLDER')
model = AutoModelForSequenceClassification.from_pretrained('THIS_FOLDER')
```

Without transformers: `python -m bert_jax.predict --model=THIS_FOLDER
--input=FILE --output=FILE`."""


def _table(head, rows) -> str:
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines)
