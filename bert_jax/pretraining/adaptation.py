"""What continued pre-training changes, on held-out text.

Whole words are predicted, by pseudo-log-likelihood, so that models of different
vocabularies are measured by the same tasks on the same text.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data import dataset, manifest_file
from bert_jax.inference import pseudo_likelihood, source
from bert_jax.pretraining import batches
from bert_jax.runtime import cards

_TEXTS, _LONGEST = 250, 30  # of each part; pieces
_COLUMNS = {
  'bits_per_character': ('bits per character', '.3f'),
  'accuracy': ('MLM accuracy, whole words', '.1%'),
  'pieces_per_word': ('pieces per word', '.3f'),
}
Scores = Mapping[str, Mapping[str, float]]


def read_texts(directory: str, length: int, size: int) -> dict[str, list[str]]:
  """Returns beginnings of held-out rows: those of the domain, and general ones.

  They have no words that are unknown to the first `size` of the vocabulary.
  """
  words = manifest_file.load_tokenizer(directory)
  theirs = dataclasses.replace(words, vocab=words.vocab[:size])
  split = dataset.open_split(directory, 'heldout', length)
  recipe = manifest_file.read(directory)['recipe']
  own = len(recipe['inputs']) - ('general_share' in recipe)
  parts = {'domain': recipe['inputs'][:own], 'general': recipe['inputs'][own:]}
  texts: dict[str, list[str]] = {}
  for part, inputs in parts.items():
    rows = [row for x in inputs for row in split.inputs.get(x, ())]
    chosen = batches.spread(min(_TEXTS, len(rows)), max(len(rows), 1))
    batch = split.reader.rows(
      np.array(rows, int)[chosen], words.cls_id, words.sep_id
    )
    begins = [
      words.decode(row[1 : row.index(words.sep_id)])
      for row in batch['input_ids'].tolist()
    ]
    texts[part] = []
    for ids in theirs.ids(begins):  # their first words
      spans = pseudo_likelihood.split_words(ids, theirs)
      fits = (end for _, end in spans if end <= min(_LONGEST, length - 2))
      ids = ids[: max(fits, default=0)]
      if ids and theirs.unk_id not in ids:
        texts[part].append(theirs.decode(ids))
  return {part: some for part, some in texts.items() if some}


def measure(
  model: source.Source, texts: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
  """Returns {part of the text: {name of a score: its value}} of a model."""
  scores = {}
  for part, some in texts.items():
    ids = model.tokenizer.ids(some)
    words = [pseudo_likelihood.split_words(x, model.tokenizer) for x in ids]
    of, values = pseudo_likelihood.predict(model, ids, words)
    # A word is guessed if each of its pieces is; its text and its end name it.
    missed = np.unique(of[values[:, 1] == 0][:, [0, 2]], axis=0)
    count, characters = (
      sum(map(len, words)),
      len(''.join(some).replace(' ', '')),
    )
    scores[part] = {
      'bits_per_character': -values[:, 0].sum() / math.log(2) / characters,
      'accuracy': 1 - len(missed) / count,
      'pieces_per_word': len(of) / count,
      'words': count,
    }
  return scores


def report(
  facts: Mapping[str, Any], directory: str, length: int, model: source.Source
) -> dict[str, Scores]:
  """Returns the scores before and after a run, and prints a table of them.

  Nothing, if by its facts the run started from no model that guesses words.
  """
  began = facts.get('init_from', {})
  if not (before := began.get('before')):
    return {}
  after = measure(model, read_texts(directory, length, began['words']))
  titles = [title for title, _ in _COLUMNS.values()]
  rows = []
  for part, now in after.items():
    changes = [
      f'{before[part][name]:{form}} → {now[name]:{form}}'
      for name, (_, form) in _COLUMNS.items()
    ]
    rows.append([part, *changes, now['words']])
  print('\n' + cards.make_table(('held-out text', *titles, 'words'), rows))
  return {'before': before, 'after': after}
