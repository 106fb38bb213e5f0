"""Scores sentences, and pairs of which one is grammatical, without training.

  python -m bert_jax.score --model=MODEL --input='blimp/*.jsonl' --output=FILE

MODEL is what bert_jax.fill_mask accepts: a run, RUN@STEP, an export or a
Hugging Face folder with an MLM head. --input is a file, a glob, a folder or
several of them, separated by commas. A file has

  .jsonl       a pair per line, `sentence_good` and `sentence_bad`, as in BLiMP;
               `UID` names the paradigm
  .tsv         a pair per line, the grammatical sentence first
  any other    a sentence per line or, with --two_lines, as in Zorro, a pair in
               every two lines, the ungrammatical sentence first

A sentence's score is its pseudo-log-likelihood in nats. A model is right about
a pair if the grammatical sentence has the higher score; if the two differ in
one word, only that word is scored, unless --full is given. The output is a .tsv
file: for sentences, their scores in order; for pairs, a row per paradigm (file,
or UID) and the mean over paradigms, which is also printed. See docs/score.md.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.finetuning import metrics
from bert_jax.finetuning.readers import table_files
from bert_jax.inference import pseudo_likelihood, source
from bert_jax.runtime import cards, cli, files, memory
from bert_jax.tokenization import unknown

# The paradigm and (grammatical, ungrammatical), or None and (sentence,).
Item = tuple[str | None, tuple[str, ...]]


def _define_flags():
  flags.DEFINE_string('model', None, 'A run, its export or another model.')
  flags.DEFINE_string('input', None, 'Files with sentences or pairs.')
  flags.DEFINE_string('output', None, 'The .tsv to write.')
  flags.DEFINE_boolean(
    'two_lines', False, 'Every two lines of a text file are a pair.'
  )
  flags.DEFINE_boolean(
    'full', False, 'Score all words of pairs that differ in one, too.'
  )
  flags.mark_flags_as_required(['model', 'input', 'output'])


def list_files(given: str) -> list[str]:
  """Returns the paths that --input names."""
  return [path for x in given.split(',') for path in text_files.expand(x)]


def read_items(given: str, two_lines: bool = False) -> list[Item]:
  """Reads sentences or pairs; arguments as the flags."""
  paths = list_files(given)
  stems = [_get_stem(path) for path in paths]
  items = []
  for path, stem in zip(paths, stems, strict=True):
    # dev.tsv of two folders is two paradigms.
    items += _read_file(
      path, stem if stems.count(stem) == 1 else path, two_lines
    )
  if len({len(texts) for _, texts in items}) != 1:
    raise errors.UserError(
      f'--input={given} has '
      f'{"both sentences and pairs" if items else "no sentence"}; give files '
      'of either.'
    )
  return items


def _get_stem(path: str) -> str:
  """Returns the name of a file without its extension and compression."""
  name, extension = os.path.basename(path), text_files.get_extension(path)
  return name[: name.lower().rindex(extension)] if extension else name


def _read_file(path: str, name: str, two_lines: bool) -> Iterator[Item]:
  columns = 'sentence_good', 'sentence_bad'
  kind = text_files.get_extension(path)
  if kind in ('.jsonl', '.tsv'):
    for number, row in table_files.read(path, headless=columns).rows:
      texts = tuple(row.get(column) for column in columns)
      if not all(isinstance(text, str) and text for text in texts):
        problem = f'has no {" and ".join(columns)}; give two sentences.'
        raise errors.at_line(path, number, problem)
      yield str(row.get('UID', name)), texts
    return
  lines = [line.strip() for line in table_files.read_text(path).split('\n')]
  lines = [line for line in lines if line]
  tabs = [line for line in lines if '\t' in line]
  if tabs:
    raise errors.UserError(
      f'{path} has a tab in {tabs[0]!r}; give one sentence per line or, for '
      'pairs with a tab between, a .tsv file.'
    )
  if not two_lines:
    yield from ((None, (line,)) for line in lines)
    return
  if len(lines) % 2:
    raise errors.UserError(
      f'{path} has {len(lines)} lines with text, but with --two_lines every two '
      'are a pair; correct it.'
    )
  for bad, good in zip(lines[::2], lines[1::2], strict=True):
    yield name, (good, bad)


def score_sentences(
  model: source.Source, texts: Sequence[str]
) -> list[tuple[str, str]]:
  """Returns a table of sentences: a head, then each score in nats and text."""
  ids = _tokenize(model, texts)
  words = [pseudo_likelihood.split_words(x, model.tokenizer) for x in ids]
  found = pseudo_likelihood.score(model, ids, words)
  numbers = map(table_files.format_number, found)
  return [('score', 'sentence'), *zip(numbers, texts, strict=True)]


def _tokenize(model, texts: Sequence[str]) -> list[list[int]]:
  """Returns the ids of texts, and prints the share that is unknown."""
  ids = model.tokenizer.ids(texts)
  flat = np.concatenate([*ids, []])
  unknown.tell(model.tokenizer, flat, texts, 'the sentences')
  return ids


def score_pairs(
  model: source.Source, items: list[Item], full: bool = False
) -> list[tuple[str, ...]]:
  """Returns a table of paradigms: a head, a row for each, and their mean.

  `full` scores all words, also of pairs that differ in one.
  """
  tokenizer = model.tokenizer
  sentences = _tokenize(model, [text for _, texts in items for text in texts])
  pairs = list(zip(sentences[::2], sentences[1::2], strict=True))
  # With a causal model, a word also changes the scores of later words.
  full = full or model.config.causal
  words = []
  for pair in pairs:
    words += pseudo_likelihood.choose_words(*pair, tokenizer, full)
  good, bad = pseudo_likelihood.score(model, sentences, words).reshape(-1, 2).T
  right = (good > bad) + (good == bad) / 2
  has_unknown = np.array([tokenizer.unk_id in a + b for a, b in pairs])
  return _make_table(np.array([name for name, _ in items]), right, has_unknown)


def _make_table(names, right, unknown) -> list[tuple[str, ...]]:
  """Returns the rows of a table of paradigms, in percent.

  Args:
    names: paradigm of each pair, [N].
    right: 1, 0 or, for ties, a half, [N].
    unknown: whether a pair has an unknown word, bool [N].
  """
  found = []
  for name in np.unique(names):
    own = names == name
    share, size = right[own].mean(), own.sum()
    bounds = metrics.find_wilson(share, size)
    found.append((name, share, *bounds, size, unknown[own].sum()))
  # The ends of a mean follow from those of its parts (Zou and Donner 2008,
  # doi.org/10.1002/sim.3095), so that a few pairs, all right, do not
  # look certain.
  share, low, high = np.transpose([row[1:4] for row in found])
  mean, parts = share.mean(), len(found)
  ends = (
    mean - np.linalg.norm(share - low) / parts,
    mean + np.linalg.norm(high - share) / parts,
  )
  found.append(('mean of all', mean, *ends, len(names), unknown.sum()))
  head = 'paradigm', 'accuracy', 'low', 'high', 'pairs', 'with [UNK]'
  return [
    head,
    *(
      (x[0], *(f'{100 * y:.1f}' for y in x[1:4]), *map(str, x[4:]))
      for x in found
    ),
  ]


def main():
  given = flags.FLAGS
  cli.require_other(given.output, *list_files(given.input))
  items = read_items(given.input, given.two_lines)
  model = source.read_with_mlm(given.model)
  if items[0][0] is None:
    rows = score_sentences(model, [texts[0] for _, texts in items])
  else:
    rows = score_pairs(model, items, given.full)
    print(cards.make_table(rows[0], rows[1:]))
  files.write_file(given.output, lambda path: table_files.write_tsv(path, rows))
  print(
    f'wrote {given.output}: {len(items):,} scored by the model of {model.origin}'
  )


if __name__ == '__main__':
  memory.keep_freed()
  _define_flags()
  cli.run(main, resumes=False)
