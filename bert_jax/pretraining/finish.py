"""Finishes a pre-training run: results, export, examples, summary of files."""

import itertools
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import config_dict

from bert_jax.config import FIELDS, model_config
from bert_jax.data import dataset, manifest_file
from bert_jax.inference import fill, trained_length
from bert_jax.interop import hugging_face
from bert_jax.model import parameters
from bert_jax.pretraining import batches, model_card
from bert_jax.runtime import files
from bert_jax.tokenization.tokenizer import Tokenizer
from bert_jax.workdir import fingerprint, log, paths

_PIECES = 24  # tokens of an example, at most
# Of a row of the log, not of the model.
_ABOUT = 'kind', 'step', 'seconds', 'seq_length'


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
  files.write_json(paths.results(workdir), results)
  words = manifest_file.load_tokenizer(directory)
  exported, problem = None, hugging_face.find_problem(bert)
  if problem is None:
    exported = paths.export(workdir)
    card = model_card.describe_run(workdir, params, step)
    length = trained_length.find(config.phases, bert.max_positions, step, facts)
    hugging_face.export(
      exported, params, bert, words, card, trained_length=length
    )
  length = config.phases.seq_length[0]
  examples = choose_examples(directory, length, words, batches.EXAMPLES)
  if examples:
    print('\nheld-out text, one word hidden:')
  for sentence, truth in examples:
    [guessed] = fill.fill(params, bert, words, sentence)
    guesses = ', '.join(f'{word} {p:.0%}' for word, p in guessed)
    print(f'  {sentence}\n    the model: {guesses}; the text: {truth}')
  print(_describe(directory, last, facts, config.phases.seq_length[-1]))
  print(f'  {directory}: vocabulary, examples, manifest')
  print(f'  {paths.checkpoints(workdir)}: parameters and optimizer')
  print(f'  {paths.metrics(workdir)}: every number of the log')
  if problem:
    print(f'  no export: {problem}')
  else:
    what = 'the model, for transformers; fill in the licence in its README.md'
    print(f'  {exported}: {what}')
  own = config.data.dir or config.data.input != FIELDS['data.input'].default
  sentences = [sentence for sentence, _ in examples]
  print('\nnext:')
  for line in _list_next(workdir, exported, sentences, bool(own)):
    print(f'  {line}')


def choose_examples(
  directory: str, length: int, words: Tokenizer, count: int
) -> list[tuple[str, str]]:
  """Returns (sentence with [MASK], masked word) of held-out rows."""
  reader = dataset.open_split(directory, 'heldout', length).reader
  chosen = batches.spread(count, len(reader))
  rows = reader.rows(chosen, words.cls_id, words.sep_id)
  examples = []
  for ids, segments in zip(rows['input_ids'], rows['segment_ids'], strict=True):
    # The first text ends where segment 1 begins, packed or not.
    first = ids[: np.argmax(segments)][1:-1].tolist()
    first = first[slice(*_choose_part(words.tokens(first)))]
    start, end = _choose_word(words.tokens(first))
    shown = [*first[:start], words.mask_id, *first[end:]]
    examples.append((words.decode(shown), words.decode(first[start:end])))
  return examples


def _choose_part(tokens: Sequence[str]) -> tuple[int, int]:
  """Returns where the first words of a text, a piece of a document, are."""
  starts = [i for i, token in enumerate(tokens) if not token.startswith('##')]
  words = [i for i in starts if _has_letters(tokens[i])]
  begin = [*words, *starts, 0][0]  # without punctuation before the first word
  ends = [i for i in [*starts, len(tokens)] if begin < i <= begin + _PIECES]
  return begin, max(ends, default=begin + _PIECES)


def _choose_word(tokens: Sequence[str]) -> tuple[int, int]:
  """Chooses the word of a text to mask; returns its begin and end.

  It is the middle one of the words that are a single piece of three letters or
  more. If there are none, as in some scripts, these conditions are dropped one
  by one.
  """
  starts = [i for i, token in enumerate(tokens) if not token.startswith('##')]
  spans = list(itertools.pairwise([*starts, len(tokens)]))
  whole = spans[:-1]  # the last word may be truncated
  lettered = [s for s in whole if all(map(_has_letters, tokens[slice(*s)]))]
  alone = [s for s in lettered if s[1] - s[0] == 1]
  long = [s for s in alone if len(tokens[s[0]]) > 2]
  best = long or alone or lettered or whole or spans or [(0, len(tokens))]
  return best[len(best) // 2]


def _has_letters(piece: str) -> bool:
  """Returns whether all characters of a piece are letters or marks."""
  return all(unicodedata.category(c)[0] in 'LM' for c in piece.lstrip('#'))


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
