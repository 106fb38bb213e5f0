"""`README.md` of an exported fine-tuned model."""

import json
from collections.abc import Sequence

from ml_collections import config_dict

import bert_jax
from bert_jax import config as config_lib
from bert_jax.finetuning import supervised
from bert_jax.runtime import markdown

# Sections of the config that the model does not depend on.
_LEFT_OUT = ('log.', 'checkpoint.', 'eval.', 'profile_steps', 'compute.')


def make_card(
  this: supervised.Supervised,
  config: config_dict.ConfigDict,
  labels: Sequence[str],
  results: dict,
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata.

  Args:
    labels: names of the classes or tags; empty for a number.
  """
  pipeline, auto, unit, drawn = this.card
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
    f'It predicts {this.describe_prediction(config, labels)}.',
    '## Evaluation',
    markdown.make_table(head, _list_scores(results)),
    f'Intervals are bootstrapped over the {drawn}, and at least as wide as '
    "Wilson's; another seed may differ by more. `constant` "
    f'{this.describe_constant(config, labels)}.'
    + (_BEST.format(**results) if results['select'] == 'best' else '')
    + (f' **Warning: {problem}.**' if problem else ''),
    '## How to load it',
    _LOADING.format(auto),
    *([_ANSWERING] if config.finetuning.unanswerable else []),
    '## Recipe',
    markdown.make_table(('field', 'value'), recipe),
  ]
  return '\n\n'.join(parts) + '\n'


_BEST = (
  ' The parameters are those of step {step:,} of {steps:,}, which scored best on '
  'dev, so the scores on dev are a little too high.'
)

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


_ANSWERING = """A question has no answer if that scores higher than the best answer
by more than the threshold in `config.json`, which was tuned on dev. transformers
does not apply it; for a question about a passage that fits into one window:

```python
import torch

question, passage = 'Who wrote Emma?', 'Emma is a novel by Jane Austen.'
spans = model.config.task_specific_params['bert_jax']['spans']
batch = tokenizer(
  question, passage, return_offsets_mapping=True, return_tensors='pt'
)
offsets = batch.pop('offset_mapping')[0]
with torch.no_grad():
  found = model(**batch)
start, end = found.start_logits[0], found.end_logits[0]
inside = batch['token_type_ids'][0].bool()
inside[-1] = False  # [SEP]
answers = (inside[:, None] & inside).triu()
answers = answers.tril(spans['max_answer_length'] - 1)
scores = (start[:, None] + end).masked_fill(~answers, -torch.inf)
first, last = divmod(int(scores.argmax()), len(start))
answer = passage[offsets[first, 0] : offsets[last, 1]]
if start[0] + end[0] - scores.max() > spans['threshold']:
  answer = ''  # there is none
```"""


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
