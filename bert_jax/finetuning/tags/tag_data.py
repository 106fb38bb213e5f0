"""The data of a tagging run: encoded once, in WORKDIR/data."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode, feature_files, feature_rows, task_data
from bert_jax.finetuning.readers import conll, data_files, sampling
from bert_jax.finetuning.tags import tag_windows
from bert_jax.tokenization import tokenizer as tokenizer_lib


class Split(NamedTuple):
  """The words of a split.

  Attributes:
    windows: the rows that tag them.
    tags: numbers of their tags, int32 [W]; None if unknown.
    words: the words themselves, W.
    sentence_ends: where each sentence ends in `words`, int64.
  """

  windows: tag_windows.Windows
  tags: np.ndarray | None
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


def make(
  config: config_dict.ConfigDict, tokenizer: tokenizer_lib.Tokenizer
) -> task_data.Data:
  """Reads and encodes the files of a config.

  Args:
    config: the experiment; phases.seq_length bounds the tokens of a row.
    tokenizer: the model's tokenizer.

  Raises:
    errors.UserError: as `conll.read`; and for a tag that no training word has.
  """
  read = _read(data_files.get_source(config))
  labels = _list_tags(read['train'][1])
  splits, facts = {}, {}
  for name, (path, sentences) in read.items():
    made = encode_sentences(tokenizer, sentences, max(config.phases.seq_length))
    tags = number_tags(path, sentences, labels)
    splits[name] = made._replace(tags=tags)
    facts[name] = {
      'sentences': len(sentences),
      'documents': len({x.document for x in sentences}),
      'words': len(splits[name].words),
      'rows': splits[name].size,
      'longest': int(made.lengths.max()),
      'repeated': task_data.describe_repeated(path, _find_repeated(read, name)),
      'entities': sum(
        tag.startswith('B-') for x in sentences for tag in x.tags or ()
      ),
    }
  return task_data.combine(splits, labels, tokenizer, facts)


def encode_sentences(
  tokenizer: tokenizer_lib.Tokenizer,
  sentences: Sequence[conll.Sentence],
  max_length: int,
) -> Split:
  """Returns sentences as a split without `tags`; args as `tag_windows.make`."""
  return Split(
    tag_windows.make(tokenizer, sentences, max_length),
    None,
    [word for x in sentences for word in x.words],
    np.cumsum([len(x.words) for x in sentences], dtype=np.int64),
  )


@functools.lru_cache(maxsize=1)
def _read(source):
  """Returns {split: (path, sentences)}; a test file may lack the tags.

  Without a dev file, documents of the training file are held out.
  """
  paths = data_files.find_files(source)
  word = conll.parse_column('data.text', source.text, 0)
  tag = conll.parse_column('data.label', source.label, -1)
  found = {}
  for split, path in paths.items():
    tags = tag if split != 'test' or conll.count_columns(path) > 1 else None
    found[split] = path, conll.read(path, word, tags)
  if 'dev' not in found:
    path, sentences = found['train']
    documents = [x.document for x in sentences]
    out = sampling.hold_out(path, source.heldout, documents)
    for split, chosen in (('train', ~out), ('dev', out)):
      found[split] = path, _take(sentences, np.flatnonzero(chosen))
  for split, (path, sentences) in found.items():
    documents = [x.document for x in sentences]
    chosen = sampling.take_sample(documents, source.max_documents)
    found[split] = path, _take(sentences, chosen)
  return found


def _take(sentences, chosen):
  return [sentences[i] for i in chosen]


def _find_repeated(read, split) -> list[int]:
  """Returns the lines of the sentences of a split that are training ones."""
  if split == 'train':
    return []
  ours, theirs = (
    (tuple(x.words) for x in read[name][1]) for name in ('train', split)
  )
  repeated = sampling.find_repeated(ours, theirs)
  return [read[split][1][i].line for i in repeated]


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
        raise errors.UserError(
          f'{path}: line {line} has the tag {tag!r}, which no training word has; '
          f'known are {errors.listing(list(labels))}. Correct the tag, or train '
          'on it, too.'
        )
      numbers.append(index[tag])
  return np.array(numbers, np.int32)


def describe(manifest: dict) -> list[str]:
  """Returns what the data are, as lines to print."""
  return [
    f'{name}: {x["sentences"]:,} sentences of {x["documents"]:,} documents, '
    f'{x["words"]:,} words, {x["entities"]:,} entities, {x["rows"]:,} rows of '
    f'at most {x["longest"]} tokens'
    for name, x in manifest['splits'].items()
  ]


def _pack(split: Split) -> dict[str, np.ndarray]:
  arrays = {
    'ids': split.windows.encoded.ids,
    'ends': split.windows.encoded.ends,
    'positions': split.windows.positions,
    'word_ends': split.windows.word_ends,
    'sentence_ends': split.sentence_ends,
    # No word has a line feed.
    'words': np.frombuffer('\n'.join(split.words).encode(), np.uint8),
  }
  return arrays if split.tags is None else arrays | {'tags': split.tags}


def _unpack(arrays: dict[str, np.ndarray], facts: dict) -> Split:
  del facts
  lengths = np.diff(arrays['ends'], prepend=0).astype(np.int32)
  encoded = encode.Encoded(arrays['ids'], arrays['ends'], lengths, 0)
  return Split(
    tag_windows.Windows(encoded, arrays['positions'], arrays['word_ends']),
    arrays.get('tags'),
    arrays['words'].tobytes().decode().split('\n'),
    arrays['sentence_ends'],
  )


def _list_tokens(split: Split) -> feature_files.Rows:
  # Only words are read, each at its first piece.
  return feature_files.Rows(*split.windows)


def _replace_ids(split: Split, features: feature_rows.FeatureRows) -> Split:
  return split._replace(windows=tag_windows.of_features(features))


FORMAT = task_data.Format(
  make,
  _pack,
  _unpack,
  describe,
  _read.cache_clear,
  _list_tokens,
  _replace_ids,
)
