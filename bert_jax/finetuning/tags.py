"""The task of tagging words, such as with named entities."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  entities,
  metrics,
  split_rows,
  supervised,
  tag_windows,
)
from bert_jax.finetuning.readers import conll, data_files
from bert_jax.inference import fine_tuned
from bert_jax.runtime import files


@dataclasses.dataclass(frozen=True)
class Words(split_rows.Rows):
  """N rows that tag W words, all in order.

  Attributes:
    encoded: the rows: [CLS] context words context [SEP]; of cached features,
      words alone.
    labels: numbers of the words' tags, int32 [W].
    positions: where each word's first piece is in its row, int32 [W].
    word_ends: where each row's words end in `positions`, int64 [N].
    words: the words themselves, W.
    sentence_ends: where each sentence ends in `words`, int64.
  """

  positions: np.ndarray
  word_ends: np.ndarray
  words: list[str]
  sentence_ends: np.ndarray

  def list_tokens(self):
    """Returns the first piece of each word: no other tokens are read."""
    return self.positions, self.word_ends

  def replace_ids(self, features):
    """Returns rows of words alone."""
    positions = split_rows.count_within(features.ends)
    return dataclasses.replace(self, encoded=features, positions=positions)

  def count(self):
    """Returns W."""
    return len(self.words)

  def find_words(self, row: int) -> slice:
    """Returns which of the words a row tags."""
    return slice(self.word_ends[row - 1] if row else 0, self.word_ends[row])

  def make_batch(self, rows, length, pad_id):
    """Returns what the model reads and, [b, S], labels at first pieces."""
    labels = np.zeros((len(rows), length), np.int32)
    weights = np.zeros(labels.shape, np.float32)
    for k, row in enumerate(rows):
      words = self.find_words(row)
      if self.labels is not None:
        labels[k, self.positions[words]] = self.labels[words]
      weights[k, self.positions[words]] = 1
    inputs = self.make_inputs(rows, length, pad_id)
    return inputs | {'labels': labels, 'label_weights': weights}

  def keep(self, kept, rows, found, whole=False):
    """Keeps the tags of the words of rows, in an array of all, int32 [W]."""
    kept = np.zeros(len(self.words), np.int32) if kept is None else kept
    for row, tags in zip(rows, found['tags'][: len(rows)], strict=True):
      words = self.find_words(row)
      kept[words] = tags[self.positions[words]]
    return kept


class Tags(supervised.Supervised):
  """A tag for each word; what is decided are the tags' numbers, int32 [W]."""

  name = 'tagging'
  card = supervised.Card(
    'token-classification', 'TokenClassification', 'words', 'sentences'
  )
  rows = Words
  extension = '.conll'
  outputs = data_files.WORDS

  # From files to rows.

  def read_file(self, source, split, path):
    """Reads a CoNLL file; a test file may lack the tags."""
    word = conll.parse_column('data.text', source.text, 0)
    tag = conll.parse_column('data.label', source.label, -1)
    lines = conll.read_lines(path)
    tagged = split != 'test' or conll.count_columns(lines) > 1
    return conll.parse(path, lines, word, tag if tagged else None)

  def list_labels(self, config, found):
    """Returns O, and B- and I- of the kinds of the training words."""
    tags = {tag for x in found['train'].units for tag in x.tags}
    kinds = sorted({tag[2:] for tag in tags - {'O'}})
    return 'O', *(f'{prefix}-{kind}' for kind in kinds for prefix in 'BI')

  def encode(self, how, content, labels, split=''):
    """Encodes sentences, with their neighbours as context."""
    sentences = content.units
    encoded, positions, word_ends = tag_windows.make(
      how.tokenizer, sentences, how.length
    )
    words = Words(
      encoded,
      number_tags(content, labels),
      positions,
      word_ends,
      [word for x in sentences for word in x.words],
      np.cumsum([len(x.words) for x in sentences], dtype=np.int64),
    )
    return words, {
      'sentences': len(sentences),
      'documents': len({x.document for x in sentences}),
      'words': len(words.words),
      'entities': sum(
        tag.startswith('B-') for x in sentences for tag in x.tags or ()
      ),
    }

  def describe_data(self, manifest):
    return [
      f'{name}: {x["sentences"]:,} sentences of {x["documents"]:,} documents, '
      f'{x["words"]:,} words, {x["entities"]:,} entities, {x["rows"]:,} rows of '
      f'at most {x["longest"]} tokens'
      for name, x in manifest['splits'].items()
    ]

  def list_columns(self, config):
    """Returns the number of the words' column; () is the first one."""
    return (config.data.text,) if config.data.text else ()

  # From rows to a loss.

  def list_shapes(self, config, module, phase, rows):
    shape = rows, phase.seq_length  # [B, S]
    return fine_tuned.list_inputs(module, *shape) | {
      'labels': jax.ShapeDtypeStruct(shape, jnp.int32),
      'label_weights': jax.ShapeDtypeStruct(shape, jnp.float32),
    }

  def compute_sums(self, module, params, batch, key):
    """Returns the sums, and {'tags': int32 [B, S]}."""
    sums, found = super().compute_sums(module, params, batch, key)
    return sums, {'tags': jnp.argmax(found['logits'], -1).astype(jnp.int32)}

  def describe_batch(self, batch):
    tokens, words = batch['input_mask'].sum(), batch['label_weights'].sum()
    return [
      f'first batch: {len(batch["labels"])} rows, '
      f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
      f'{words / tokens:.1%} of the tokens are first pieces to tag'
    ]

  # From predictions to scores and files.

  def list_metrics(self, labels, glue=''):
    return 'f1', 'precision', 'recall'

  def measure(self, names, labels, split, found):
    return entities.score(sum(_count(split, labels, found).values()))

  def compare(self, names, labels, split, found, train):
    """Scores entities: all and, as `kinds`, each kind alone."""
    counts = _count(split, labels, found)
    kinds = {kind: entities.score(x) for kind, x in counts.items()}
    return entities.compare(sum(counts.values())) | {'kinds': kinds}

  def find_problem(self, names, scored, found):
    """Returns the problem if no entity was found, or as of any task."""
    if not scored['metrics']['f1']:
      return 'no entity of dev was found'
    return metrics.find_problem('f1', scored, found)

  def describe_scores(self, named):
    """Returns a line for each split, and one for each kind of entity."""
    lines = ['']
    for split, x in named.items():
      shown = []
      for name, value in x['metrics'].items():
        low, high = x['intervals'][name]
        shown.append(f'{name} {value:.4f} [{low:.4f}, {high:.4f}]')
      lines.append(f'{split} {", ".join(shown)}')
      for kind, scores in x['kinds'].items():
        shown = [f'{name} {value:.4f}' for name, value in scores.items()]
        lines.append(f'  {kind or "entities"}: {", ".join(shown)}')
    return lines

  def write_split(self, folder, name, labels, split, found):
    """Writes SPLIT.conll: word, tag if known, predicted tag; blank lines."""
    columns = [split.words]
    for tags in (split.labels, found):
      if tags is not None:
        columns.append([labels[i] for i in tags])
    ends = set(split.sentence_ends.tolist())
    path = os.path.join(folder, f'{name}.conll')
    with open(path, 'w', encoding='utf-8', newline='\n') as file:
      for i, row in enumerate(zip(*columns, strict=True), 1):
        file.write('\t'.join(row) + '\n' + '\n' * (i in ends))

  # Predictions for a user's file.

  def read_given(self, job):
    """Reads a CoNLL file; the flags give the columns' numbers."""
    head, column = job.model.head, job.columns[0]
    if column is None:
      column = head.columns[0] if head.columns else ''
    number = conll.parse_column('--text', column, 0)
    tag = conll.parse_column('--label', job.label, -1) if job.label else None
    lines = conll.read_lines(job.given)
    content = conll.parse(job.given, lines, number, tag)
    return content, (lines, content)

  def write_given(self, job, split, about, found):
    """Writes the lines of the input, each word as `word<tab>tag`."""
    tags = [job.model.head.labels[i] for i in found]
    text = '\n'.join(conll.list_tagged(*about, tags)).encode()
    files.write_file(
      job.output, lambda new: pathlib.Path(new).write_bytes(text)
    )


TASK = Tags()


def number_tags(
  content: conll.Words, labels: Sequence[str]
) -> np.ndarray | None:
  """Returns the tags of all words, int32 [W]; None if they were not read."""
  if content.units[0].tags is None:
    return None
  index = {tag: i for i, tag in enumerate(labels)}
  numbers = []
  for sentence in content.units:
    for line, tag in enumerate(sentence.tags, sentence.line):
      if tag not in index:
        raise errors.at_line(
          content.path,
          line,
          f'has the tag {tag!r}, which no training word has; known are '
          f'{errors.listing(list(labels))}. Correct the tag, or train on it, too.',
        )
      numbers.append(index[tag])
  return np.array(numbers, np.int32)


def _count(split: Words, labels, tags) -> dict[str, np.ndarray]:
  """Returns `entities.count` of a split's words, whose predictions are tags."""
  truth, predicted = (
    [[labels[i] for i in x] for x in np.split(x, split.sentence_ends[:-1])]
    for x in (split.labels, tags)
  )
  return entities.count(truth, predicted) or {
    '': np.zeros((len(split.sentence_ends), 3), int)
  }
