"""Scores sentences, and pairs of which one is grammatical, without training.

  python -m bert_jax.score --model=MODEL --input='blimp/*.jsonl' --output=FILE

MODEL is what bert_jax.fill_mask accepts. --input is a file, a glob, a folder or
several of them, separated by commas: .jsonl as BLiMP's, .tsv with a pair per line,
the grammatical sentence first, or a sentence per line; with --two_lines, as in
Zorro, two lines are a pair, the ungrammatical one first.

A sentence's score is its pseudo-log-likelihood in nats; of pairs, the share is
written in which the grammatical one scores higher, by paradigm (docs/analysis.md).
"""

import functools
import os
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.finetuning import metrics
from bert_jax.finetuning.readers import table_files
from bert_jax.inference import pseudo_likelihood, source
from bert_jax.runtime import cards, cli, files, machine
from bert_jax.tokenization import unknown
from bert_jax.trained import Model


def read_items(paths: Sequence[str], two_lines: bool = False) -> list[tuple]:
  """Returns (paradigm, (good, bad)) of pairs, or (None, (text,)) of sentences."""
  stems, items = [_get_stem(path) for path in paths], []
  for path, stem in zip(paths, stems, strict=True):
    # dev.tsv of two folders is two paradigms.
    name = stem if stems.count(stem) == 1 else path
    items += _read_file(path, name, two_lines)
  if len({len(texts) for _, texts in items}) != 1:
    problem = 'both sentences and pairs' if items else 'no sentence'
    raise errors.UserError(f'--input has {problem}; give files of either.')
  return items


def _get_stem(path: str) -> str:
  name, extension = os.path.basename(path), text_files.get_extension(path)
  return name[: name.lower().rindex(extension)] if extension else name


def _read_file(path: str, name: str, two_lines: bool) -> Iterator[tuple]:
  columns = 'sentence_good', 'sentence_bad'
  if text_files.get_extension(path) in ('.jsonl', '.tsv'):
    for number, row in table_files.read(path, headless=columns).rows:
      texts = tuple(row.get(column) for column in columns)
      if not all(isinstance(text, str) and text for text in texts):
        problem = f'has no {" and ".join(columns)}; give two sentences.'
        raise errors.at_line(path, number, problem)
      yield str(row.get('UID', name)), texts
    return
  lines = [line.strip() for line in table_files.read_text(path).split('\n')]
  lines = [line for line in lines if line]
  if tabs := [line for line in lines if '\t' in line]:
    raise errors.UserError(
      f'{path} has a tab in {tabs[0]!r}; give pairs in a .tsv file, or no tab.'
    )
  if two_lines and len(lines) % 2:
    raise errors.UserError(
      f'{path} has {len(lines)} lines with text, but two are a pair; add one.'
    )
  if two_lines:
    yield from ((name, x) for x in zip(lines[1::2], lines[::2], strict=True))
  else:
    yield from ((None, (line,)) for line in lines)


def score_pairs(
  model: source.Source,
  names: Sequence[str],
  sentences: Sequence[list[int]],
  full: bool = False,
) -> list:
  """Returns a table: a head, a row for each paradigm, and their mean.

  Two sentences, as ids, are a pair, of the paradigm that `names` has for it.
  """
  pairs = [*zip(sentences[::2], sentences[1::2], strict=True)]
  # With a causal model, a word also changes the scores of later words.
  full = full or model.config.causal
  words = [
    of
    for pair in pairs
    for of in pseudo_likelihood.choose_words(*pair, model.tokenizer, full)
  ]
  good, bad = pseudo_likelihood.score(model, sentences, words).reshape(-1, 2).T
  missing = [model.tokenizer.unk_id in a + b for a, b in pairs]
  names, of = np.unique(names, return_inverse=True)
  sizes, missing = np.bincount(of), np.bincount(of, missing).astype(int)
  share = np.bincount(of, (good > bad) + (good == bad) / 2) / sizes
  low, high = np.transpose([*map(metrics.find_wilson, share, sizes)])
  rows = [*zip(names, share, low, high, sizes, missing, strict=True)]
  # The ends of a mean follow from those of its parts (Zou and Donner 2008,
  # doi.org/10.1002/sim.3095), so that a few pairs, all right, do not look certain.
  below, above = (np.linalg.norm(share - x) / len(share) for x in (low, high))
  mean = share.mean() + np.array([0, -below, above])
  rows.append(('mean of all', *mean, sizes.sum(), missing.sum()))
  head = 'paradigm', 'accuracy', 'low', 'high', 'pairs', 'with [UNK]'
  return [head] + [
    (name, *(f'{100 * x:.1f}' for x in numbers[:3]), *map(str, numbers[3:]))
    for name, *numbers in rows
  ]


def main():
  given = flags.FLAGS
  paths = [y for x in given.input.split(',') for y in text_files.expand(x)]
  cli.require_other(given.output, *paths)
  names, units = zip(*read_items(paths, given.two_lines), strict=True)
  model = source.read_with_mlm(given.model)
  texts = [text for unit in units for text in unit]
  ids = model.tokenizer.ids(texts)
  flat = np.concatenate([*ids, []])
  unknown.tell(model.tokenizer, flat, texts, 'the sentences')
  if names[0] is None:
    numbers = map(table_files.format_number, Model(model).score(texts))
    rows = [('score', 'sentence'), *zip(numbers, texts, strict=True)]
  else:
    rows = score_pairs(model, names, ids, given.full)
    print(cards.make_table(rows[0], rows[1:]))
  write = functools.partial(table_files.write_table, rows=rows)
  files.write_file(given.output, write)
  print(f'wrote {given.output}: {len(units):,} scored by {model.origin}')


def _define_flags():
  flags.DEFINE_string('model', None, 'A run, its export or another model.')
  flags.DEFINE_string('input', None, 'Files with sentences or pairs.')
  flags.DEFINE_string('output', None, 'The .tsv to write.')
  flags.DEFINE_boolean('two_lines', False, 'Two lines of a text are a pair.')
  flags.DEFINE_boolean('full', False, 'Score all words of each pair.')
  flags.mark_flags_as_required(['model', 'input', 'output'])


if __name__ == '__main__':
  machine.keep_freed_memory()
  _define_flags()
  cli.run(main, resumes=False)
