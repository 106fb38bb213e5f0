"""The task of tagging words, such as with named entities."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, supervised
from bert_jax.finetuning.readers import conll, examples, splits
from bert_jax.inference import fine_tuned, padding
from bert_jax.runtime import files


@dataclasses.dataclass(frozen=True)
class Words(encode.Rows):
  """N rows, [CLS] context words context [SEP], that tag W words, all in order."""

  positions: np.ndarray  # of each word's first piece in its row, int32 [W]
  word_ends: np.ndarray  # where each row's words end in these, int64 [N]
  sentences: list[conll.Sentence]

  def count(self):
    return len(self.positions)

  def find_words(self, row: int) -> slice:
    return slice(self.word_ends[row - 1] if row else 0, self.word_ends[row])

  def make_batch(self, rows, length, pad_id):
    """Returns the model's inputs and, [b, S], labels at first pieces."""
    labels = np.zeros((len(rows), length), np.int32)
    weights = np.zeros(labels.shape, np.float32)
    for k, row in enumerate(rows):
      words = self.find_words(row)
      if self.labels is not None:
        labels[k, self.positions[words]] = self.labels[words]
      weights[k, self.positions[words]] = 1
    inputs = self.make_inputs(rows, length, pad_id)
    return inputs | {'labels': labels, 'label_weights': weights}

  def keep(self, kept, rows, outputs, whole=False):
    """Keeps the tags of the words of rows, in an array of all, int32 [W]."""
    kept = kept or {'chosen': np.zeros(self.count(), np.int32)}
    for row, tags in zip(rows, outputs['tags'][: len(rows)], strict=True):
      words = self.find_words(row)
      kept['chosen'][words] = tags[self.positions[words]]
    return kept


class Tags(supervised.Supervised):
  """A tag for each word; predictions are `chosen`, their numbers, int32 [W]."""

  name = 'tagging'
  pipeline, auto = 'token-classification', 'TokenClassification'
  counted = 'words'
  unit = 'sentence'
  constant = (
    'no entity; of plain tags, the commonest, and for intervals words are drawn, '
    'not sentences'
  )
  extension = '.conll'
  outputs = splits.WORDS
  columns, needed, takes_keep = 1, (), False

  def read(self, path, columns, labelled, asked=splits.FIELDS):
    word = conll.parse_column(asked.text, columns.text)
    tag = conll.parse_column(asked.label, columns.label)
    return conll.read(path, word, tag, labelled)

  def list_labels(self, source, contents):
    """Returns O, and B and I of the kinds of the training words; or all tags."""
    tags = {tag for x in contents['train'].units for tag in x.tags}
    if conll.parse_scheme(tags) is None:
      return tuple(sorted(tags))
    kinds = sorted({tag[1:] for tag in tags - {'O'}})
    return 'O', *(f'{letter}{kind}' for kind in kinds for letter in 'BI')

  def encode(self, how, content, labels, split=''):
    sentences = content.units
    encoded, positions, word_ends = make_windows(how, sentences)
    numbers = number_tags(content, labels)
    words = Words(encoded, numbers, positions, word_ends, sentences)
    begun = sum(x[:2] in ('B', 'B-') for y in sentences for x in y.tags or ())
    return words, {
      'counts': [
        errors.count(len(sentences), 'sentence'),
        errors.count(len({x.document for x in sentences}), 'document'),
        errors.count(words.count(), 'word'),
        *([f'{begun:,} entities'] if begun else []),
        errors.count(words.size, 'row'),
        *content.notes,
      ]
    }

  def list_shapes(self, f, module, phase, rows):
    shape = rows, phase.seq_length  # [B, S]
    return fine_tuned.list_inputs(*shape) | {
      'labels': jax.ShapeDtypeStruct(shape, jnp.int32),
      'label_weights': jax.ShapeDtypeStruct(shape, jnp.float32),
    }

  def compute_sums(self, module, params, batch, key, settings=None):
    """Returns the sums, and {'tags': int32 [B, S]}."""
    logits = supervised.apply(module, params, batch, key)
    tags = jnp.argmax(logits, -1).astype(jnp.int32)
    return supervised.sum_classes(logits, batch), {'tags': tags}

  def list_metrics(self, labels, f=None):
    plain = conll.parse_scheme(set(labels)) is None
    return ('accuracy', 'macro_f1') if plain else ('f1', 'precision', 'recall')

  def compare(self, names, labels, split, predicted, train=None):
    if 'accuracy' in names:
      return super().compare(names, labels, split, predicted, train)
    forms = conll.parse_scheme(set(labels))  # BIO, or that of others' models
    bio = [forms.get(x, 'O') for x in labels]
    ends = np.cumsum([len(x.words) for x in split.sentences])[:-1]
    truth, chosen = (
      [[bio[i] for i in x] for x in np.split(tags, ends)]
      for tags in (split.labels, predicted['chosen'])
    )
    counts = count_entities(truth, chosen)
    every = sum(counts.values())
    if train is None:
      return {'metrics': metrics.score_sums(every, divide)}
    kinds = {kind: metrics.score_sums(x, divide) for kind, x in counts.items()}
    macro = float(np.mean([x['f1'] for x in kinds.values()]))
    nothing = np.zeros((1, 3), int)
    scored = metrics.compare_sums(every, nothing, divide)
    return scored | {'kinds': kinds, 'macro_f1': macro}

  def write_split(self, folder, name, labels, split, predicted):
    """Writes SPLIT.conll: word, tag if known, predicted tag; blank lines."""
    both = (x for x in (split.labels, predicted['chosen']) if x is not None)
    tags = zip(*([labels[i] for i in x] for x in both), strict=True)
    path = os.path.join(folder, f'{name}.conll')
    with open(path, 'w', encoding='utf-8', newline='\n') as file:
      for sentence in split.sentences:
        lines = ('\t'.join((x, *next(tags))) for x in sentence.words)
        file.writelines(f'{line}\n' for line in (*lines, ''))

  def write_given(self, job, content, split, predicted):
    """Writes the lines of the input, each word as `word<tab>tag`."""
    tags = [job.model.head.labels[i] for i in predicted['chosen']]
    text = '\n'.join(content.list_tagged(tags))
    files.write_text(job.output, text)


TASK = Tags()


def make_windows(
  how: encode.How, sentences: Sequence[conll.Sentence]
) -> tuple[padding.Encoded, np.ndarray, np.ndarray]:
  """Returns `encoded`, `positions` and `word_ends` of `Words`.

  A sentence's row is filled up, on both sides, with its context in the document
  (arXiv 1810.04805, section 5.3: "the maximal document context"). A word is
  tagged at its first piece. Sentences that are too long get several rows.
  """
  tokenizer, room = how.tokenizer, how.length - 2
  cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
  rows, positions, counts = [], [], []
  for _, group in itertools.groupby(sentences, lambda x: x.document):
    pieces, spans = _tokenize(tokenizer, group, room)
    for words in spans:
      begin, end = words[0][0], words[-1][1]
      spare = room - (end - begin)
      left = min(begin, spare // 2)
      right = min(len(pieces) - end, spare - left)
      left = min(begin, spare - right)
      rows.append(cls + pieces[begin - left : end + right] + sep)
      positions += [1 + left + first - begin for first, _ in words]
      counts.append(len(words))
  encoded = padding.chain(tokenizer, rows, [len(row) for row in rows])
  word_ends = np.cumsum(counts, dtype=np.int64)
  return encoded, np.array(positions, np.int32), word_ends


def _tokenize(tokenizer, sentences, room):
  """Returns (pieces of a document, [[(begin, end) of a word], ...] of rows).

  A word has at least one piece and at most `room`, as has a row.
  """
  pieces: list[int] = []
  spans: list[list[tuple[int, int]]] = []
  for sentence in sentences:
    spans.append([])
    going_on = [tokenizer.space + x for x in sentence.words]
    words = going_on if pieces else [*sentence.words[:1], *going_on[1:]]
    for ids in tokenizer.ids(words):
      begin = len(pieces)
      pieces += ids[:room] or [tokenizer.unk_id]
      if spans[-1] and len(pieces) - spans[-1][0][0] > room:
        spans.append([])
      spans[-1].append((begin, len(pieces)))
  return pieces, spans


def number_tags(
  content: conll.Words, labels: Sequence[str]
) -> np.ndarray | None:
  """Returns the tags of all words, int32 [W]; None if they were not read."""
  if content.units[0].tags is None:
    return None
  words = [
    examples.Example(line, '', None, tag, '')
    for x in content.units
    for line, tag in zip(x.lines, x.tags, strict=True)
  ]
  return examples.number_labels(examples.Examples(content.path, words), labels)


# Entities by conlleval's rules, which are the few lines of `find_entities`:
# seqeval has had no release since 2020.


def find_entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
  """Returns the entities of a sentence: (first word, one past the last, kind).

  As in conlleval, an I- whose kind differs from the tag before it begins an
  entity, so any sequence of tags can be scored.

  >>> sorted(find_entities(['B-PER', 'I-PER', 'I-LOC', 'O', 'I-LOC', 'B-LOC']))
  [(0, 2, 'PER'), (2, 3, 'LOC'), (4, 5, 'LOC'), (5, 6, 'LOC')]
  """
  entities, first, inside = set(), 0, ''
  for i, tag in enumerate([*conll.to_bio(tags), 'O']):
    if inside and tag[0] != 'I':
      entities.add((first, i, inside))
      inside = ''
    if tag[0] == 'B':
      first, inside = i, tag[2:] or '_'  # as in seqeval
  return entities


def count_entities(
  truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
  """Returns {kind: hits, predicted and true entities of sentences, [N, 3]}.

  The kind is '' if there are no entities at all.
  """
  pairs = [
    (find_entities(a), find_entities(b))
    for a, b in zip(truth, predicted, strict=True)
  ]
  kinds = {kind for pair in pairs for x in pair for *_, kind in x} or {''}
  counts = {kind: np.zeros((len(pairs), 3), int) for kind in sorted(kinds)}
  for i, (there, given) in enumerate(pairs):
    for column, entities in enumerate((there & given, given, there)):
      for *_, kind in entities:
        counts[kind][i, column] += 1
  return counts


def divide(sums: np.ndarray) -> dict[str, Any]:
  """Returns the scores of sums of counts, [3]; 0 of nothing is 0."""
  hits, given, there = sums
  return {
    'f1': 2 * hits / np.maximum(given + there, 1),
    'precision': hits / np.maximum(given, 1),
    'recall': hits / np.maximum(there, 1),
  }
