"""Finds evaluation text that the training text contains.

  python -m bert_jax.data.contamination --data=PREPARED --eval='glue/*/dev.tsv'

An evaluation row is contaminated if 13 consecutive words of it occur in the
training text, as in the GPT-3 paper (arXiv 2005.14165, appendix C): letters and
digits, without case and punctuation; ideographs and kana count as a word each.
Rows of fewer words are counted, but cannot be judged.

--data is what bert_jax.data.prepare made, or a run with data of its own; its
text is read again and must be as it was. --eval names files, folders or
globs, separated by commas: .json, .jsonl, .conll or, by line, anything else.
Prints the share of each file and the worst rows; --output gets all rows. The
exit code is 0 whatever is found.

--documents=FILE lists the documents that hold such words, by a hash of their
text. bert_jax.data.prepare --exclude=FILE, or bert_jax.main with
--config.data.exclude=FILE, then leaves them out.
"""

import collections
import itertools
import json
import os
import re
import types
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.corpus import document as documents
from bert_jax.corpus import sources, text_files
from bert_jax.data import document_spill, manifest_file, prepare
from bert_jax.runtime import cli, files, memory, process_pool, progress, storage

N = 13  # words
_IDEOGRAPH = r'\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff'
# Vowel signs of Indic scripts, and accents, are part of a word but not of \w.
_MARKS = ''.join(
  c for c in map(chr, range(1 << 16)) if unicodedata.category(c) in ('Mc', 'Mn')
)
_LETTER = rf'[^\W_{_IDEOGRAPH}]'
_WORD = re.compile(rf'[{_IDEOGRAPH}]|{_LETTER}+(?:[{_MARKS}]{_LETTER}*)*')
_WORST = 5  # rows printed
_UNREADABLE = (*text_files.DAMAGED, RecursionError)  # of JSON
# A different odd multiplier for each place in an n-gram.
_FACTORS = np.random.default_rng(13).integers(1 << 64, size=N, dtype='u8') | 1


class Row(NamedTuple):
  """A line of a file, or a text of a .json, or a sentence of a .conll."""

  path: str
  line: int  # from 1
  text: str


def split_words(text: str) -> list[str]:
  """Returns the words of a text, without case and punctuation.

  >>> split_words("It's 2 o'clock, 世界!")
  ['it', 's', '2', 'o', 'clock', '世', '界']
  >>> split_words('हिन्दी में')
  ['हिन्दी', 'में']
  """
  return _WORD.findall(text.lower())


def read_rows(given: str) -> list[Row]:
  """Reads evaluation files: paths, folders or globs, separated by commas."""
  rows = []
  for path in itertools.chain(*map(text_files.expand, given.split(','))):
    with errors.explaining(f'cannot read {path}', 'is it whole?', _UNREADABLE):
      texts = enumerate(_read_texts(path), 1)
      rows += [Row(path, i, text) for i, text in texts if text.strip()]
  return rows


def _read_texts(path: str) -> Iterator[str]:
  with text_files.open_text(path) as file:
    raw = file.read()
  text_files.refuse_utf16(path, raw)
  text = raw.decode('utf-8-sig', 'replace')
  extension = text_files.get_extension(path)
  if extension == '.json':
    return _list_texts(json.loads(text))
  if extension == '.conll':
    words = re.sub(r'(?m)^(\S+).*$', r'\1', text)
    return iter(re.split(r'\n\s*\n', words))
  return map(_decode_line, text.split('\n'))


def _decode_line(line: str) -> str:
  """Returns the texts of a line of JSONL, or else the line."""
  if line.startswith(('{', '[')):
    try:
      return ' \n '.join(_list_texts(json.loads(line)))
    except (ValueError, RecursionError):
      pass
  return line


def _list_texts(value: Any) -> Iterator[str]:
  """Yields the texts in a JSON value, in order."""
  if isinstance(value, str):
    yield value
  elif isinstance(value, dict | list):
    for found in value.values() if isinstance(value, dict) else value:
      yield from _list_texts(found)


def _hash(ids: np.ndarray) -> np.ndarray:
  """Returns uint64 [G], hashes of the n-grams without unknown words.

  Args:
    ids: numbers of words, uint64 [W]; 0 is unknown.
  """
  if len(ids) < N:
    return np.empty(0, np.uint64)
  grams = np.lib.stride_tricks.sliding_window_view(ids, N)
  return (grams @ _FACTORS)[grams.all(1)]


def search(
  pieces: Sequence[sources.Piece],
  recipe: types.SimpleNamespace,
  ids: dict[str, int],
  wanted: np.ndarray,
  left_out: frozenset[str],
) -> tuple[set[int], list[str]]:
  """Searches pieces of the training text, in a process of its own.

  Args:
    ids: {word of evaluation rows: number from 1}.
    wanted: hashes of their n-grams, sorted uint64 [G].
    left_out: documents that are not searched, by `document.identify`.

  Returns:
    The wanted hashes that were found; and the `identify` of the documents to
    leave out: those that hold any and, with `max_documents`, those that do
    among the documents that take their place.
  """
  found, holding = set(), []
  counts: collections.Counter[str] = collections.Counter()
  most, rest = recipe.max_documents, {**vars(recipe), 'max_documents': 0}
  read = document_spill.read_documents(
    pieces, types.SimpleNamespace(**rest), left_out, counts, counts
  )
  for n, (_, document) in enumerate(read):
    if most and n - len(holding) == most:
      break
    words = itertools.chain.from_iterable(map(split_words, document.paragraphs))
    hashes = _hash(np.fromiter((ids.get(x, 0) for x in words), np.uint64))
    at = np.searchsorted(wanted, hashes)
    there = hashes[wanted.take(at, mode='clip') == hashes]
    if len(there):
      holding.append(documents.identify(document))
      if not most or n < most:
        found.update(there.tolist())
  return found, holding


def find(
  data: str, rows: Sequence[Row], workers: int = process_pool.ONE_PER_CORE
) -> tuple[list[dict[str, Any]], set[str]]:
  """Compares evaluation rows with the text that data was prepared from.

  Returns:
    For each row, `path`, `line`, its `words`, the `share` of its n-grams that
    the text contains (null if it has fewer words than an n-gram) and, as a
    `sample`, the words of the first such n-gram; and the documents to leave
    out, see `search`, with those that the data was prepared without.
  """
  manifest = manifest_file.read(data)
  recipe = types.SimpleNamespace(**manifest['recipe'])
  left_out = frozenset(manifest['excluded'])
  texts = [split_words(row.text) for row in rows]
  ids = {x: i for i, x in enumerate(dict.fromkeys(itertools.chain(*texts)), 1)}
  grams = [_hash(np.array([ids[x] for x in text], np.uint64)) for text in texts]
  wanted = np.unique(np.concatenate([*grams, np.empty(0, np.uint64)]))
  pieces = []
  if len(wanted):
    pieces = sources.plan(recipe.inputs, recipe.layout, recipe.field)
    given = sources.list_files(pieces)
    manifest_file.check_inputs(manifest['inputs'], given, data)
  found, holding = set(), set(left_out)
  jobs = [
    (own, recipe, ids, wanted, left_out)
    for own in document_spill.split_jobs(pieces, recipe.max_documents)
  ]
  made = prepare.local_runner(workers)(search, jobs)
  total = sum(piece.size for piece in pieces)
  with progress.Progress(total, 'B', 'searching') as bar:
    for (own, *_), some in zip(jobs, made, strict=True):
      found |= some[0]
      holding.update(some[1])
      bar.update(sum(piece.size for piece in own))
  results = []
  for row, words, own in zip(rows, texts, grams, strict=True):
    there = [k for k, x in enumerate(own.tolist()) if x in found]
    share = len(there) / len(own) if len(own) else None
    sample = ' '.join(words[there[0] :][:N]) if there else None
    facts = {'words': len(words), 'share': share, 'sample': sample}
    results.append({'path': row.path, 'line': row.line} | facts)
  return results, holding


def summarise(results: Sequence[dict[str, Any]]) -> list[str]:
  """Returns the lines of a table by file, and of the worst rows."""
  shares = collections.defaultdict(list)
  for x in results:
    shares[x['path']].append(x['share'])
  lines = [f'{"rows":>8} {f"{N} words":>8} {"found":>8} {"share":>7}  file']
  for path, some in shares.items():
    judged = [x for x in some if x is not None]
    bad = sum(x > 0 for x in judged)
    share = f'{bad / len(judged):.2%}' if judged else ''
    counts = f'{len(some):>8,} {len(judged):>8,} {bad:>8,}'
    lines.append(f'{counts} {share:>7}  {path}')
  worst = [x for x in results if x['share']]
  worst.sort(key=lambda x: (-x['share'], -x['words']))
  return lines + [
    f'{x["path"]} line {x["line"]}: {x["share"]:.0%} of its n-grams, such as '
    f'"{x["sample"]}"'
    for x in worst[:_WORST]
  ]


def _define_flags():
  flags.DEFINE_string('data', None, 'Prepared data, or a run that has its own.')
  flags.DEFINE_string('eval', None, 'Evaluation files, folders or globs.')
  flags.DEFINE_string('output', '', 'A .json for every row.')
  flags.DEFINE_string('documents', '', 'A file for the documents to leave out.')
  flags.mark_flags_as_required(['data', 'eval'])


def main():
  """Runs the command."""
  given = flags.FLAGS
  data = storage.resolve(given.data)
  own = os.path.join(data, 'data')
  data = own if storage.exists(own) else data
  results, holding = find(data, read_rows(given.eval))
  print('\n'.join(summarise(results)))
  if given.output:
    found = {'rows': results}
    files.write_file(given.output, lambda new: files.write_json(new, found))
    print(f'wrote {given.output}: {errors.count(len(results), "row")}')
  if given.documents:
    documents.write_list(given.documents, holding)
    print(f'wrote {given.documents}: {errors.count(len(holding), "document")}')


if __name__ == '__main__':
  memory.keep_freed()
  _define_flags()
  cli.run(main)
