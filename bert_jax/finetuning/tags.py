"""The task of tagging words, such as with named entities."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  entities,
  feature_rows,
  metrics,
  supervised,
  tag_windows,
  task_data,
)
from bert_jax.finetuning.readers import conll, data_files, sampling
from bert_jax.inference import fine_tuned
from bert_jax.model import losses
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer as tokenizer_lib


class Words(NamedTuple):
  """The words of a split.

  Attributes:
    windows: the rows that tag them.
    labels: numbers of their tags, int32 [W]; None if unknown.
    words: the words themselves, W.
    sentence_ends: where each sentence ends in `words`, int64.
  """

  windows: tag_windows.Windows
  labels: np.ndarray | None
  words: list[str]
  sentence_ends: np.ndarray

  @property
  def size(self) -> int:
    """Returns the number of rows."""
    return len(self.windows.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.windows.encoded.lengths


class Tags(supervised.Supervised):
  """A tag for each word; what is decided are the tags' numbers, int32 [W]."""

  name = 'tagging'
  card = supervised.Card(
    'token-classification', 'TokenClassification', 'words', 'sentences'
  )
  extension = '.conll'
  outputs = conll.EXTENSIONS
  doing = 'tagging'

  # From files to rows.

  def read(self, config, tokenizer):
    """Reads and encodes CoNLL files; the training words have the tags."""
    read = _read(data_files.get_source(config))
    labels = _list_tags(read['train'].sentences)
    splits, facts = {}, {}
    for name, (path, sentences) in read.items():
      length = max(config.phases.seq_length)
      made = encode_sentences(tokenizer, sentences, length)
      splits[name] = made._replace(labels=number_tags(path, sentences, labels))
      repeated = _find_repeated(read, name)
      facts[name] = {
        'sentences': len(sentences),
        'documents': len({x.document for x in sentences}),
        'words': len(made.words),
        'rows': made.size,
        'longest': int(made.lengths.max()),
        'repeated': task_data.describe_repeated(path, repeated),
        'entities': sum(
          tag.startswith('B-') for x in sentences for tag in x.tags or ()
        ),
      }
    return task_data.combine(splits, labels, tokenizer, facts)

  def pack(self, split):
    arrays = {
      'ids': split.windows.encoded.ids,
      'ends': split.windows.encoded.ends,
      'positions': split.windows.positions,
      'word_ends': split.windows.word_ends,
      'sentence_ends': split.sentence_ends,
      # No word has a line feed.
      'words': np.frombuffer('\n'.join(split.words).encode(), np.uint8),
    }
    return arrays if split.labels is None else arrays | {'tags': split.labels}

  def unpack(self, arrays, facts):
    lengths = np.diff(arrays['ends'], prepend=0).astype(np.int32)
    encoded = encode.Encoded(arrays['ids'], arrays['ends'], lengths, 0)
    return Words(
      tag_windows.Windows(encoded, arrays['positions'], arrays['word_ends']),
      arrays.get('tags'),
      arrays['words'].tobytes().decode().split('\n'),
      arrays['sentence_ends'],
    )

  def list_tokens(self, split):
    """Returns the first piece of each word: no other tokens are read."""
    return feature_rows.Tokens(*split.windows)

  def replace_ids(self, split, features):
    return split._replace(windows=tag_windows.of_features(features))

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

  def make_batch(self, data, split, rows, length):
    """Returns what the model reads and, [b, S], labels at first pieces."""
    made = split.windows
    labels = np.zeros((len(rows), length), np.int32)
    weights = np.zeros(labels.shape, np.float32)
    for k, row in enumerate(rows):
      words = tag_windows.find_words(made, row)
      if split.labels is not None:
        labels[k, made.positions[words]] = split.labels[words]
      weights[k, made.positions[words]] = 1
    return encode.make_batch(made.encoded, rows, length, data.pad_id) | {
      'labels': labels,
      'label_weights': weights,
    }

  def list_shapes(self, config, module, phase, rows):
    shape = rows, phase.seq_length  # [B, S]
    return fine_tuned.list_inputs(module, *shape) | {
      'labels': jax.ShapeDtypeStruct(shape, jnp.int32),
      'label_weights': jax.ShapeDtypeStruct(shape, jnp.float32),
    }

  def compute_sums(self, module, params, batch, key):
    """Returns the sums, and {'tags': int32 [B, S]}."""
    logits = supervised.apply(module, params, batch, key)
    loss, hits = losses.sum_tokens(
      logits, batch['labels'], batch['label_weights']
    )
    tags = jnp.argmax(logits, -1).astype(jnp.int32)
    return {'cross_entropy': loss, 'accuracy': hits}, {'tags': tags}

  def describe_batch(self, batch):
    tokens, words = batch['input_mask'].sum(), batch['label_weights'].sum()
    return [
      f'first batch: {len(batch["labels"])} rows, '
      f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
      f'{words / tokens:.1%} of the tokens are first pieces to tag'
    ]

  # From predictions to scores and files.

  def keep(self, split, kept, rows, found):
    """Keeps the tags of the words of rows, in an array of all, int32 [W]."""
    made = split.windows
    kept = np.zeros(len(split.words), np.int32) if kept is None else kept
    for row, tags in zip(rows, found['tags'][: len(rows)], strict=True):
      words = tag_windows.find_words(made, row)
      kept[words] = tags[made.positions[words]]
    return kept

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

  def count(self, split):
    return len(split.words)

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
    """Reads the words of a CoNLL file; the flags give the columns' numbers."""
    head, column = job.model.head, job.columns[0]
    if column is None:
      column = head.columns[0] if head.columns else ''
    number = conll.parse_column('--text', column, 0)
    tag = conll.parse_column('--label', job.label, -1) if job.label else None
    lines = conll.read_lines(job.given)
    sentences = conll.parse(job.given, lines, number, tag)
    labels = number_tags(job.given, sentences, head.labels)
    words = encode_sentences(job.model.tokenizer, sentences, head.max_length)
    return supervised.Given(words._replace(labels=labels), (lines, sentences))

  def write_given(self, job, given, found):
    """Writes the lines of the input, each word as `word<tab>tag`."""
    tags = [job.model.head.labels[i] for i in found]
    text = '\n'.join(conll.list_tagged(*given.about, tags))

    def fill(new):
      with open(new, 'w', encoding='utf-8', newline='\n') as file:
        file.write(text)

    files.write_file(job.output, fill)


TASK = Tags()


def encode_sentences(
  tokenizer: tokenizer_lib.Tokenizer,
  sentences: Sequence[conll.Sentence],
  max_length: int,
) -> Words:
  """Returns sentences as rows of at most `max_length` tokens, without labels."""
  return Words(
    tag_windows.make(tokenizer, sentences, max_length),
    None,
    [word for x in sentences for word in x.words],
    np.cumsum([len(x.words) for x in sentences], dtype=np.int64),
  )


def _read(source) -> dict[str, conll.File]:
  """Returns {split: its sentences}; a test file may lack the tags.

  Without a dev file, documents of the training file are held out.
  """
  word = conll.parse_column('data.text', source.text, 0)
  tag = conll.parse_column('data.label', source.label, -1)
  found = {}
  for split, path in data_files.find_files(source).items():
    lines = conll.read_lines(path)
    tagged = split != 'test' or conll.count_columns(lines) > 1
    sentences = conll.parse(path, lines, word, tag if tagged else None)
    found[split] = conll.File(path, sentences)
  return sampling.choose_groups(
    found,
    source.heldout,
    source.max_documents,
    lambda file: [x.document for x in file.sentences],
    conll.take,
  )


def _find_repeated(read, split) -> list[int]:
  """Returns the lines of the sentences of a split that are training ones."""
  if split == 'train':
    return []
  ours, theirs = (
    (tuple(x.words) for x in read[name].sentences) for name in ('train', split)
  )
  repeated = sampling.find_repeated(ours, theirs)
  return [read[split].sentences[i].line for i in repeated]


def _list_tags(sentences) -> tuple[str, ...]:
  kinds = sorted({tag[2:] for x in sentences for tag in x.tags if tag != 'O'})
  return 'O', *(f'{prefix}-{kind}' for kind in kinds for prefix in 'BI')


def number_tags(
  path: str, sentences: Sequence[conll.Sentence], labels: Sequence[str]
) -> np.ndarray | None:
  """Returns the tags of all words, int32 [W]; None if they were not read.

  Raises:
    errors.UserError: if a tag is not one of `labels`.
  """
  if sentences[0].tags is None:
    return None
  index = {tag: i for i, tag in enumerate(labels)}
  numbers = []
  for sentence in sentences:
    for line, tag in enumerate(sentence.tags, sentence.line):
      if tag not in index:
        raise errors.at_line(
          path,
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
