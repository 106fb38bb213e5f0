"""`README.md` of an exported model: its size, training data and results."""

from typing import Any

import jax

from bert_jax.config import flatten
from bert_jax.data import manifest_file, summary
from bert_jax.inference import trained_length, trained_run
from bert_jax.runtime import cards
from bert_jax.workdir import log, paths

# Fields that do not affect the parameters or mean nothing in pre-training, and
# `data.*`, which come from the manifest: another config may have prepared them.
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


def describe_run(workdir: str, params: Any, step: int) -> str:
  """Returns the card of a run's parameters after a step.

  It is Markdown, with Hugging Face's metadata.
  """
  config = trained_run.read_config(paths.config(workdir))
  rows = log.read(paths.metrics(workdir))
  rows = [row for row in rows if row['step'] <= step]
  # A run keeps a copy, see `claim.keep`.
  directory = workdir if config.data.dir else paths.own_data(workdir)
  manifest = manifest_file.read(directory)
  words = manifest_file.load_tokenizer(directory).vocab
  causal, most = config.objective.kind == 'ltr', config.model.max_positions
  autos = ['AutoModelForCausalLM' if causal else 'AutoModelForMaskedLM']
  autos += ['AutoModelForPreTraining'] if config.objective.nsp else []
  about = log.find_facts(rows)
  last = max((row['step'] for row in rows), default=0)
  length = trained_length.find(config.phases, most, last, about)
  facts = {
    'parameters': sum(x.size for x in jax.tree.leaves(params)),
    'tokens of a row in training, at most': length,
    'classes of transformers': ', '.join(autos),
    **_describe_source(about.get('init_from')),
  }
  if length < most:
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
  scores = ''
  if evaluated := [row for row in rows if row['kind'] == 'eval']:
    size = config.phases.seq_length[-1], config.eval.sequences
    scores = _evaluate(manifest, evaluated[-1], *size)
  sections = {
    'Model': cards.list_facts(facts),
    'Loading': cards.show_loading(
      autos[0], 'fill_mask --model=THIS_FOLDER "a [MASK] sentence ."'
    ),
    'Training text': summary.describe_text(manifest),
    'Held-out text': scores,
    'Recipe': cards.list_fields(dict(sorted(fields.items()))),
  }
  card = cards.make_card(f'BERT of {config.model.num_layers} layers', sections)
  language = summary.name_language(manifest, words)
  pipeline = 'text-generation' if causal else 'fill-mask'
  return cards.make_metadata(pipeline, language) + card


def _describe_source(facts: dict | None) -> dict[str, str]:
  """Returns what is known of the model that the run started from, if any."""
  if not facts:
    return {}
  about = facts['origin']  # of a run the step and the fingerprint it printed
  if about == facts['path']:
    about = f'fingerprint={facts["fingerprint"]}'
  start = f'`{cards.name_paths(facts["path"])}` ({about}), a new optimizer'
  return {'started from': '; '.join([start, *facts['changes']])}


def _evaluate(manifest, row, length: int, most: int) -> str:
  columns = [name for name in _SCORES if name in row]
  inputs = [x.partition('/')[2] for x in row if x.startswith('mlm_loss/')]
  lines = []
  for of in ('', *inputs):
    name = f'`{cards.name_paths(of)}`' if of else f'step {row["step"]:,}'
    scores = [f'{row[f"{x}/{of}" if of else x]:{_SCORES[x]}}' for x in columns]
    lines.append([name, *scores])
  sequences = sum(
    shard['files'][str(length)]['records']
    for shard in manifest['shards']
    if shard['split'] == 'heldout'
  )
  facts = {'sequences, at most': min(sequences, most)}
  facts['mlm_loss of word frequencies'] = manifest['unigram_entropy']
  if 'nsp_accuracy' in columns:
    constant = manifest_file.get_constant_nsp(manifest, length)
    facts['nsp_accuracy of a constant'] = f'{constant:.1%}'
  table = cards.make_table(('', *columns), lines)
  return f'{table}\n\n{cards.list_facts(facts)}'
