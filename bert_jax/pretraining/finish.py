"""Finishes a pre-training run: results, export with its card, examples."""

import itertools
import shlex
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import config_dict

from bert_jax.config import FIELDS, flatten, model_config
from bert_jax.data import dataset, manifest_file, summary
from bert_jax.inference import fill, trained_length, trained_run
from bert_jax.interop import hugging_face, rename
from bert_jax.model import parameters
from bert_jax.pretraining import adaptation, batches
from bert_jax.runtime import cards, files
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.workdir import fingerprint, log, paths

_PIECES = 24  # tokens of an example, at most
# Of a row of the log, not of the model.
_ABOUT = 'kind', 'step', 'seconds', 'seq_length'
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


def finish(
  config: config_dict.ConfigDict,
  directory: str,
  workdir: str,
  params: Any,
  predictions: dict,
  step: int,
):
  """Exports the model and prints what it does and what to do next."""
  del predictions
  bert = model_config(config)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  rows = log.read(paths.metrics(workdir))
  facts = log.find_facts(rows)
  [*_, last] = (row for row in rows if row['kind'] == 'eval')
  results = {
    'metrics': {'mlm_loss': last['mlm_loss']}
    | {name: x for name, x in last.items() if name not in _ABOUT},
    'seed': config.seed,
    'step': step,
    'fingerprint': fingerprint.combine(fingerprint.of_arrays(params)),
  }
  words = manifest_file.load_tokenizer(directory)
  lengths = config.phases.seq_length
  model = rename.LoadedModel(params, bert, words)
  results |= adaptation.report(facts, directory, lengths[0], model)
  files.write_json(paths.results(workdir), results)
  exported, problem = None, hugging_face.find_problem(bert)
  if problem is None:
    exported = paths.export(workdir)
    card = describe_run(workdir, params, step)
    length = trained_length.find(config.phases, bert.max_positions, step, facts)
    hugging_face.export(
      exported, params, bert, words, card, trained_length=length
    )
  examples = choose_examples(directory, lengths[0], words, batches.EXAMPLES)
  if examples:
    print('\nheld-out text, one word hidden:')
  for sentence, truth in examples:
    [guessed] = fill.fill(params, bert, words, sentence)
    guesses = ', '.join(f'{word} {p:.0%}' for word, p in guessed)
    print(f'  {sentence}\n    the model: {guesses}; the text: {truth}')
  print(_describe(directory, last, facts, lengths[-1]))
  print(f'  {directory}: vocabulary, examples, manifest')
  print(f'  {paths.checkpoints(workdir)}: parameters and optimizer')
  print(f'  {paths.metrics(workdir)}: every number of the log')
  what = 'the model, for transformers; fill in the licence in its README.md'
  print(f'  no export: {problem}' if problem else f'  {exported}: {what}')
  own = config.data.dir or config.data.input != FIELDS['data.input'].default
  lines = _list_next(workdir, exported, [x for x, _ in examples], bool(own))
  print('\n  '.join(['\nnext:', *lines]))


def choose_examples(
  directory: str, length: int, words: Tokenizer, count: int
) -> list[tuple[str, str]]:
  """Returns (sentence with [MASK], masked word) of held-out rows."""
  reader = dataset.open_split(directory, 'heldout', length).reader
  chosen = batches.spread(count, len(reader))
  rows = reader.rows(chosen, words.cls_id, words.sep_id)
  examples = []
  for ids in rows['input_ids'].tolist():
    first = ids[1 : ids.index(words.sep_id)]
    pieces = [words.decode([i]).strip() for i in first]
    goes_on = words.continues(np.array(first))
    begin, start, end, last = _hide_word(pieces, goes_on)
    shown = [*first[begin:start], words.mask_id, *first[end:last]]
    texts = (words.decode(x) for x in (shown, first[start:end]))
    texts = (x.replace('[MASK]', f'{words.space}[MASK]') for x in texts)
    examples.append(tuple(' '.join(x.split()) for x in texts))
  return examples


def _hide_word(
  tokens: Sequence[str], goes_on: Sequence[bool]
) -> tuple[int, int, int, int]:
  """Chooses the first whole words of a text, which may be cut, and one of them.

  It is the middle one of those that are a single piece of three letters or more,
  if there are any. Returns where the words begin, it begins, it ends, they end.
  """
  starts = [i for i, x in enumerate(goes_on) if not x]
  spans = list(itertools.pairwise([*starts, len(tokens)]))
  shown = [x for x in spans if x[1] <= starts[0] + _PIECES]
  shown = shown or [(0, min(len(tokens), _PIECES))]
  whole = [x for x in shown if x[1] < len(tokens)] or shown
  words = [
    (i, j)
    for i, j in whole
    if j == i + 1 and tokens[i].isalpha() and len(tokens[i]) > 2
  ]
  best = words or whole
  return shown[0][0], *best[len(best) // 2], shown[-1][1]


def _describe(directory, last, facts, length) -> str:
  """Describes the last evaluation, beside what constants get."""
  nsp, entropy = '', facts['unigram_entropy']
  if 'nsp_accuracy' in last:
    manifest = manifest_file.read(directory)
    constant = manifest_file.get_constant_nsp(manifest, length)
    nsp = (
      f', NSP accuracy {last["nsp_accuracy"]:.1%} (a constant gets '
      f'{constant:.1%})'
    )
  gain = entropy - last['mlm_loss']
  # If the phases have several lengths.
  rows = f' in rows of {length} tokens' if 'seq_length' in last else ''
  return (
    f'\nheld-out after {last["step"]:,} steps{rows}: MLM loss '
    f'{last["mlm_loss"]:.3f} ({abs(gain):.2f} nats '
    f'{"below" if gain >= 0 else "above"} the unigram entropy {entropy:.3f}), '
    f'perplexity {last["mlm_perplexity"]:.1f}, MLM accuracy '
    f'{last["mlm_accuracy"]:.1%}{nsp}'
  )


def _list_next(
  workdir: str, exported: str | None, sentences: Sequence[str], own: bool
) -> list[str]:
  """Returns commands to try next, with a sentence of the held-out text."""
  lines, quoted = [], shlex.quote(workdir)
  if exported and sentences:
    known = [sentence for sentence in sentences if '[UNK]' not in sentence]
    # A sentence without quotation marks makes a command that is easy to read.
    sentence = min(
      known or sentences, key=lambda x: len(shlex.quote(x)) - len(x)
    )
    end = ['--'] if sentence.startswith('-') else []
    command = shlex.join([f'--model={exported}', *end, sentence])
    lines.append(f'python -m bert_jax.fill_mask {command}')
  report = f'python -m bert_jax.report --workdir={quoted}'
  lines.append(f'pip install matplotlib && {report}')
  given = "--config=configs/budget.py:cpu_quarter --config.data.input='TEXT'"
  what = "TEXT: files of your own; see 'Your own text' in README.md"
  if own:
    given = f'--config=configs/classify.py --config.init_from={quoted} '
    given += '--config.data.input=train=FILE'
    what = 'FILE: a CSV, TSV or JSONL file with the columns text and label'
  lines.append(f'python -m bert_jax.main {given} --workdir=NEW')
  return [*lines, f'  ({what})']


def describe_run(workdir: str, params: Any, step: int) -> str:
  """Returns the card of a run's parameters after a step, with metadata."""
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
  modern = config.model.body == 'modern'
  if length < most:
    worse = 'much worse, since the embeddings of later positions are random'
    worse = 'untried, as it was trained on none' if modern else worse
    cut = '`truncation=True` of the tokenizer cuts them'
    facts['longer texts'] = f'{worse}; {cut}'
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
  name = f'{"Modern" * modern}BERT'
  title = f'{name} of {config.model.num_layers} layers'
  card = cards.make_card(title, sections)
  language = summary.name_language(manifest, words)
  pipeline = 'text-generation' if causal else 'fill-mask'
  return cards.make_metadata(pipeline, name, language) + card


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
