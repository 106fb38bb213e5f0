"""`README.md` of an exported model: its size, training data and results."""

import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax.config import flatten
from bert_jax.data import manifest_file
from bert_jax.inference import trained_length, trained_run
from bert_jax.runtime import markdown
from bert_jax.workdir import log, paths

# Fields that do not affect the parameters or mean nothing in pre-training, and
# `data.*`, which are taken from the manifest: data may have been prepared with another config.
_LEFT_OUT = (
  *('log.', 'checkpoint.', 'data.', 'finetuning.', 'model.bilstm'),
  *('profile_steps', 'task'),
)
_MOST_ROWS = 12  # of the table of evaluations
_CURVES = {
  'step': ('step', '{:,}'),
  'seq_length': ('tokens a row', '{:,}'),
  'mlm_loss': ('MLM loss', '{:.3f}'),
  'mlm_perplexity': ('perplexity', '{:.1f}'),
  'mlm_accuracy': ('MLM accuracy', '{:.1%}'),
  'nsp_loss': ('NSP loss', '{:.3f}'),
  'nsp_accuracy': ('NSP accuracy', '{:.1%}'),
}


def make_card(
  config: config_dict.ConfigDict,
  manifest: dict,
  rows: Sequence[dict],
  parameters: int,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata."""
  causal = config.objective.kind == 'ltr'
  name = 'A left-to-right BERT' if causal else 'A BERT'
  m = config.model
  evaluated = [row for row in rows if row['kind'] == 'eval']
  # Rows of a damaged log may lack something.
  shown = evaluated[-1].keys() & _CURVES.keys() if evaluated else set()
  evaluated = [x for x in evaluated if shown <= x.keys()]
  parts = [
    _metadata(manifest['recipe']['language'], causal),
    f'# {name} of {m.num_layers} layers',
    f'{parameters:,} parameters: {m.num_layers} layers, hidden size '
    f'{m.hidden_size}, {m.num_heads} heads, {m.max_positions} positions; '
    f'{"un" if config.data.lowercase else ""}cased vocabulary'
    f'{_accents(manifest["recipe"])} of '
    f'{config.data.vocab_size:,} word pieces. Pre-trained by bert_jax '
    f'{manifest["version"]}.',
    *_lengths(config, rows),
    *_source(rows),
    '## How to load it',
    _loading(causal, config.objective.nsp),
    '## Training text',
    _data(manifest),
    '## Evaluation',
    _evaluation(config, manifest, evaluated),
    '## Recipe',
    markdown.make_table(
      ('field', 'value'),
      [
        (field, f'`{json.dumps(value)}`')
        for field, value in _recipe(config, manifest)
      ],
    ),
  ]
  return '\n\n'.join(parts) + '\n'


def _accents(recipe):
  strips = recipe['strip_accents']
  if strips == recipe['lowercase']:
    return ''
  return f' {"without" if strips else "with"} accents'


def _metadata(language, causal):
  return f"""---
# FILL IN the licence under which you publish this model, such as apache-2.0;
# the training text's matters, too. Every export overwrites this file.
license: unknown
language: {language}
library_name: transformers
pipeline_tag: {'text-generation' if causal else 'fill-mask'}
tags:
- bert
---"""


def _recipe(config, manifest):
  fields = {
    field: value
    for field, value in flatten(config).items()
    if not field.startswith(_LEFT_OUT)
  }
  data = {f'data.{field}': v for field, v in manifest['recipe'].items()}
  return sorted({**fields, **data}.items())


def _lengths(config, rows) -> list[str]:
  """Returns a line on positions that were never trained, if there are some."""
  step = max((row['step'] for row in rows), default=0)
  length = trained_length.find(config, step, log.find_facts(rows))
  if length == config.model.max_positions:
    return []
  return [
    f'It was trained on rows of {length} tokens at most. The embeddings of later '
    'positions are random, so it is much worse on longer texts: cut them at '
    f'{length} tokens, as `truncation=True` of its tokenizer does.'
  ]


def _source(rows) -> list[str]:
  """Returns lines on the model that the run started from, if any."""
  facts = log.find_facts(rows).get('init_from')
  if not facts:
    return []
  about = facts['origin']  # of a run the step and the fingerprint it printed
  if about == facts['path']:
    about = f'fingerprint={facts["fingerprint"]}'
  return [
    f'It started from the parameters of `{facts["path"]}` ({about}), with a new '
    'optimizer.',
    *(f'* {change}' for change in facts['changes']),
  ]


def _loading(causal, nsp):
  kind = 'AutoModelForCausalLM' if causal else 'AutoModelForMaskedLM'
  both = (
    ' `AutoModelForPreTraining` also has the next sentence head.' if nsp else ''
  )
  return f"""```python
from transformers import {kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('THIS_FOLDER')
model = {kind}.from_pretrained('THIS_FOLDER')
```

Without transformers: `python -m bert_jax.fill_mask --model=THIS_FOLDER "a
[MASK] sentence ."`.{both}"""


def _data(manifest):
  found = manifest['documents']
  return '\n\n'.join(
    [
      markdown.make_table(
        ('input', 'documents', 'bytes of text'),
        [
          (
            f'`{given["input"]}`',
            f'{given["documents"]:,}',
            f'{given["text_bytes"]:,}',
          )
          for given in manifest['inputs']
        ],
      ),
      f'{found["train"]:,} documents, or parts of long ones, to train on: '
      f'{manifest["sentences"]:,} sentences, {manifest["tokens"]:,} tokens, '
      f'{manifest["unknown_share"]:.2%} of them unknown to the vocabulary. '
      '`DATA_CARD.md` beside the training data says what was cleaned.',
    ]
  )


def _evaluation(config, manifest, rows):
  if not rows:
    return 'Not evaluated.'
  length = str(config.phases.seq_length[-1])
  sequences = sum(
    shard['files'][length]['records']
    for shard in manifest['shards']
    if shard['split'] == 'heldout'
  )
  sequences = min(sequences, config.eval.sequences)
  if len(set(config.phases.seq_length)) > 1:  # else the column says nothing
    lengths = np.repeat(config.phases.seq_length, config.phases.steps)
    # Where the length changes, both were evaluated.
    rows = [{'seq_length': int(lengths[x['step'] - 1])} | x for x in rows]
  columns = [name for name in _CURVES if name in rows[-1]]
  constant = manifest_file.get_constant_nsp(manifest, int(length))
  chosen = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).round()
  table = markdown.make_table(
    [_CURVES[name][0] for name in columns],
    [
      [_CURVES[name][1].format(rows[int(i)][name]) for name in columns]
      for i in chosen
    ],
  )
  return '\n\n'.join(
    [
      f'On {manifest["documents"]["heldout"]:,} documents, or parts of long '
      f'ones, that it was not trained on, at most {sequences:,} sequences at a '
      'time; losses in nats.',
      table,
      *_by_input(rows[-1]),
      f'Word frequencies alone give an MLM loss of '
      f'{manifest["unigram_entropy"]:.3f}'
      + (
        f', and always the same answer an NSP accuracy of {constant:.1%}'
        if 'nsp_accuracy' in columns
        else ''
      )
      + '. It was evaluated on nothing else.',
    ]
  )


def _by_input(row) -> list[str]:
  """Returns a table of the last evaluation by input, if there are several."""
  found = (name.partition('/') for name in row)
  inputs = [of for name, _, of in found if name == 'mlm_loss' and of]
  if not inputs:
    return []
  columns = [name for name in _CURVES if f'{name}/{inputs[0]}' in row]
  head = ['at the end, by input', *(_CURVES[name][0] for name in columns)]
  cells = [
    [f'`{x}`', *(_CURVES[y][1].format(row[f'{y}/{x}']) for y in columns)]
    for x in inputs
  ]
  return [markdown.make_table(head, cells)]


def describe_run(workdir: str, params: Any, step: int) -> str:
  """Returns the model card of a run's parameters after a step."""
  config = trained_run.read_config(paths.config(workdir))
  rows = log.read(paths.metrics(workdir))
  return make_card(
    config,
    # A run keeps a copy, see `claim.keep`.
    manifest_file.read(workdir if config.data.dir else paths.own_data(workdir)),
    [row for row in rows if row['step'] <= step],
    sum(x.size for x in jax.tree.leaves(params)),
  )
