"""`README.md` of an exported model: its size, training data and results."""

from collections.abc import Sequence
from typing import Any

import jax
from ml_collections import config_dict

from bert_jax.config import flatten
from bert_jax.data import data_card, manifest_file
from bert_jax.inference import trained_length, trained_run
from bert_jax.runtime import cards
from bert_jax.workdir import log, paths

# Fields that do not affect the parameters or mean nothing in pre-training, and
# `data.*`, which are taken from the manifest: data may have been prepared with another config.
_LEFT_OUT = (
  *('log.', 'checkpoint.', 'data.', 'finetuning.', 'model.bilstm'),
  *('profile_steps', 'task'),
)
# {metric of an evaluation: its form}
_SCORES = {
  'mlm_loss': '.3f',
  'mlm_perplexity': '.1f',
  'mlm_accuracy': '.1%',
  'nsp_loss': '.3f',
  'nsp_accuracy': '.1%',
}


def make_card(
  config: config_dict.ConfigDict,
  manifest: dict,
  rows: Sequence[dict],
  parameters: int,
  language: str,
) -> str:
  """Returns the model card, in Markdown with Hugging Face's metadata."""
  causal = config.objective.kind == 'ltr'
  autos = ['AutoModelForCausalLM' if causal else 'AutoModelForMaskedLM']
  autos += ['AutoModelForPreTraining'] if config.objective.nsp else []
  step = max((row['step'] for row in rows), default=0)
  length = trained_length.find(config, step, log.find_facts(rows))
  facts = {
    'parameters': parameters,
    'tokens of a row in training, at most': length,
    'classes of transformers': ', '.join(autos),
    **_describe_source(rows),
  }
  if length < config.model.max_positions:
    facts['longer texts'] = (
      'much worse, since the embeddings of later positions are random; '
      '`truncation=True` of the tokenizer cuts them'
    )
  fields = {
    field: value
    for field, value in flatten(config).items()
    if not field.startswith(_LEFT_OUT)
  }
  fields |= {f'data.{name}': x for name, x in manifest['recipe'].items()}
  evaluated = [row for row in rows if row['kind'] == 'eval']
  pipeline = 'text-generation' if causal else 'fill-mask'
  sections = {
    'Model': cards.list_facts(facts),
    'Loading': cards.show_loading(
      autos[0], 'fill_mask --model=THIS_FOLDER "a [MASK] sentence ."'
    ),
    'Training text': data_card.describe_text(manifest),
    'Held-out text': _evaluate(config, manifest, evaluated[-1:]),
    'Recipe': cards.list_fields(dict(sorted(fields.items()))),
  }
  card = cards.make_card(f'BERT of {config.model.num_layers} layers', sections)
  return cards.make_metadata(pipeline, language) + card


def _describe_source(rows) -> dict[str, str]:
  """Returns what is known of the model that the run started from, if any."""
  facts = log.find_facts(rows).get('init_from')
  if not facts:
    return {}
  about = facts['origin']  # of a run the step and the fingerprint it printed
  if about == facts['path']:
    about = f'fingerprint={facts["fingerprint"]}'
  start = [f'`{cards.name_paths(facts["path"])}` ({about}), a new optimizer']
  return {'started from': '; '.join([*start, *facts['changes']])}


def _evaluate(config, manifest, rows) -> str:
  if not rows:
    return ''
  [row], length = rows, config.phases.seq_length[-1]
  columns = [name for name in _SCORES if name in row]
  inputs = [x.partition('/')[2] for x in row if x.startswith('mlm_loss/')]
  table = cards.make_table(
    ('', *columns),
    [
      [f'`{cards.name_paths(of)}`' if of else f'step {row["step"]:,}']
      + [f'{row[f"{x}/{of}" if of else x]:{_SCORES[x]}}' for x in columns]
      for of in ('', *inputs)
    ],
  )
  sequences = sum(
    shard['files'][str(length)]['records']
    for shard in manifest['shards']
    if shard['split'] == 'heldout'
  )
  facts = {'sequences, at most': min(sequences, config.eval.sequences)}
  facts['mlm_loss of word frequencies'] = manifest['unigram_entropy']
  if 'nsp_accuracy' in columns:
    constant = manifest_file.get_constant_nsp(manifest, length)
    facts['nsp_accuracy of a constant'] = f'{constant:.1%}'
  return f'{table}\n\n{cards.list_facts(facts)}'


def describe_run(workdir: str, params: Any, step: int) -> str:
  """Returns the model card of a run's parameters after a step."""
  config = trained_run.read_config(paths.config(workdir))
  rows = log.read(paths.metrics(workdir))
  # A run keeps a copy, see `claim.keep`.
  directory = workdir if config.data.dir else paths.own_data(workdir)
  manifest = manifest_file.read(directory)
  words = manifest_file.load_tokenizer(directory).vocab
  return make_card(
    config,
    manifest,
    [row for row in rows if row['step'] <= step],
    sum(x.size for x in jax.tree.leaves(params)),
    manifest_file.name_language(manifest, words),
  )
