"""The data of a run on spans: questions about passages, and their windows."""

import functools
import json
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import encode, task_data
from bert_jax.finetuning.readers import data_files, sampling, squad
from bert_jax.finetuning.spans import span_windows
from bert_jax.model import classifier
from bert_jax.tokenization import offsets
from bert_jax.tokenization import tokenizer as tokenizer_lib

LABELS = 'start', 'end'


class Split(NamedTuple):
  """The questions of a split.

  Attributes:
    windows: their rows.
    labels: where the answer begins and ends in each row, int32 [N, 2]; (0, 0),
      [CLS], if it is not there; None if the answers are not known.
    ids: the questions' ids, Q.
    answers: the right answers to each question, () if there is none; None if
      they are not known.
    passages: the passages, as they were given.
    passage_of: number of each question's passage, int32 [Q].
    located: the pieces of each passage.
  """

  windows: span_windows.Windows
  labels: np.ndarray | None
  ids: list[str]
  answers: list[tuple[str, ...]] | None
  passages: list[str]
  passage_of: np.ndarray
  located: list[offsets.Located]

  @property
  def size(self) -> int:
    """Returns the number of rows."""
    return len(self.windows.encoded.ends)

  @property
  def lengths(self) -> np.ndarray:
    """Returns the tokens of each row, int [N]."""
    return self.windows.encoded.lengths


def get_settings(config: config_dict.ConfigDict) -> classifier.Spans:
  """Returns how answers are found; the threshold is that of no tuning."""
  c = config.finetuning
  return classifier.Spans(
    c.doc_stride,
    c.max_query_length,
    c.max_answer_length,
    0.0 if c.unanswerable else None,
  )


def make(
  config: config_dict.ConfigDict, tokenizer: tokenizer_lib.Tokenizer
) -> task_data.Data:
  """Reads and encodes the files of a config.

  Args:
    config: the experiment; phases.seq_length bounds the tokens of a row.
    tokenizer: the model's tokenizer.

  Raises:
    errors.UserError: as `squad.read`; and for questions without an answer,
      unless finetuning.unanswerable.
  """
  splits, facts = {}, {}
  length, settings = max(config.phases.seq_length), get_settings(config)
  read = _read(data_files.get_source(config), tokenizer)
  for name, (content, located) in read.items():
    if not config.finetuning.unanswerable:
      _check_answers(name, content)
    rows = content.questions
    spans, about = find_spans(content, located)
    if name == 'train':
      left_out = {*about['wrong_start'], *about['not_found']}
      kept = [i for i, x in enumerate(rows) if x.id not in left_out]
      rows, spans = [rows[i] for i in kept], spans[kept]
      if not rows:
        raise errors.UserError(
          f'{content.path}: no answer is where answer_start says; correct it.'
        )
    splits[name] = encode_questions(
      tokenizer, content._replace(questions=rows), located, length, settings
    )
    if splits[name].answers is not None:
      labels = span_windows.label(splits[name].windows, spans)
      splits[name] = splits[name]._replace(labels=labels)
    repeated = _find_repeated(read['train'][0], content, name)
    facts[name] = _describe(content.path, splits[name]) | {
      what: {'count': len(found), 'first': found[0] if found else None}
      for what, found in about.items()
    }
    facts[name]['repeated'] = task_data.describe_repeated(
      content.path, repeated
    )
  return task_data.combine(splits, LABELS, tokenizer, facts)


def encode_questions(
  tokenizer: tokenizer_lib.Tokenizer,
  content: squad.Squad,
  located: list[offsets.Located],
  max_length: int,
  settings: classifier.Spans,
) -> Split:
  """Returns the questions of a file, without `labels`.

  Args:
    tokenizer: the model's tokenizer.
    content: the file.
    located: the pieces of its passages.
    max_length: tokens of a row, at most.
    settings: how answers are found.
  """
  rows = content.questions
  passage_of = [x.passage for x in rows]
  made = span_windows.make(
    tokenizer,
    [x.text for x in rows],
    located,
    passage_of,
    max_length,
    settings.doc_stride,
    settings.max_query_length,
  )
  answers = None
  if all(x.answers is not None for x in rows):
    answers = [tuple(text for text, _ in x.answers) for x in rows]
  return Split(
    made,
    None,
    [x.id for x in rows],
    answers,
    content.passages,
    np.array(passage_of, np.int32),
    located,
  )


# Kept, since completing the config and writing the data need the same tokens.
@functools.lru_cache(maxsize=1)
def _read(source, tokenizer):
  """Returns {split: (content of its file, pieces of its passages)}.

  Without a dev file, the questions about some passages are held out.
  """
  read = {x: squad.read(y) for x, y in data_files.find_files(source).items()}
  if 'dev' not in read:
    whole = read['train']
    passages = [x.passage for x in whole.questions]
    out = sampling.hold_out(whole.path, source.heldout, passages)
    for split, chosen in (('train', ~out), ('dev', out)):
      read[split] = squad.take(whole, np.flatnonzero(chosen))
  found = {}
  for split, content in read.items():
    passages = [x.passage for x in content.questions]
    chosen = sampling.take_sample(passages, source.max_documents)
    content = squad.take(content, chosen)
    unknown = [x.id for x in content.questions if x.answers is None]
    if unknown and split != 'test':
      raise errors.UserError(
        f'{content.path}: the answers to {errors.count(len(unknown), "question")} of {split} '
        f'are not given, such as that to {unknown[0]!r}; only a test file may lack them.'
      )
    found[split] = content, offsets.locate(tokenizer, content.passages)
  return found


def _find_repeated(train, content, split) -> list[str]:
  """Returns the ids of questions that the training file has, too."""
  if split == 'train':
    return []
  ours, theirs = (
    [(x.text, file.passages[x.passage]) for x in file.questions]
    for file in (train, content)
  )
  repeated = sampling.find_repeated(ours, theirs)
  return [content.questions[i].id for i in repeated]


def _check_answers(name, content):
  without = [x.id for x in content.questions if x.answers == ()]
  if without:
    raise errors.UserError(
      f'{content.path}: {errors.count(len(without), "question")} of {name} without an answer, '
      f'such as {without[0]!r}; use configs/squad.py:v2, in which they may.'
    )


def find_spans(
  content: squad.Squad, located: list[offsets.Located]
) -> tuple[np.ndarray, dict[str, list[str]]]:
  """Returns which tokens of their passages the first answers are.

  Args:
    content: the questions.
    located: the pieces of their passages.

  Returns:
    (spans, lost): first and last token, int32 [Q, 2], -1 without an answer; and
    the ids of questions whose answer is not where it should be (`wrong_start`)
    or has no characters that a piece is made of (`not_found`).
  """
  lost: dict[str, list[str]] = {'wrong_start': [], 'not_found': []}
  spans = np.full((len(content.questions), 2), -1, np.int32)
  for k, question in enumerate(content.questions):
    if not question.answers:
      continue
    text, begin = question.answers[0]
    passage, end = content.passages[question.passage], begin + len(text)
    if begin < 0 or passage[begin:end] != text:
      lost['wrong_start'].append(question.id)
      continue
    tokens = span_windows.find_tokens(located[question.passage], begin, end)
    if tokens is None:
      lost['not_found'].append(question.id)
    else:
      spans[k] = tokens
  return spans, lost


def _describe(path, split) -> dict[str, Any]:
  """Returns the facts about a split, for the manifest."""
  lengths, answers = split.windows.encoded.lengths, split.answers
  return {
    'path': path,
    'questions': len(split.ids),
    'passages': len(split.passages),
    # None if the answers are not known.
    'unanswerable': None if answers is None else answers.count(()),
    'rows': split.size,
    'longest': int(lengths.max()),
  }


def describe(manifest: dict) -> list[str]:
  """Returns what the data are, as lines to print."""
  lines = []
  for name, x in manifest['splits'].items():
    none, which = x['unanswerable'], ''
    if none is None:
      which = ', whose answers are not known,'
    elif none:
      which = f', {none:,} of them without an answer,'
    lines.append(
      f'{name}: {errors.count(x["questions"], "question")}{which} about '
      f'{errors.count(x["passages"], "passage")}, '
      f'{errors.count(x["rows"], "window")} of at most {x["longest"]} tokens '
      f'({x["path"]})'
    )
    done = 'left out' if name == 'train' else 'kept for their score'
    for field, what in (
      ('wrong_start', 'is not where answer_start says'),
      ('not_found', 'has no characters that the model can see'),
    ):
      if x[field]['count']:
        lines.append(
          f'WARNING: {errors.count(x[field]["count"], "question")} of {x["path"]} whose '
          f'answer {what}, {done}; the first is {x[field]["first"]!r}'
        )
  return lines


def _pack(split: Split) -> dict[str, np.ndarray]:
  texts = {
    'ids': split.ids, 'answers': split.answers, 'passages': split.passages
  }  # fmt: skip
  sizes = [len(x.ids) for x in split.located]
  arrays = encode.pack(split.windows.encoded) | {
    'questions': split.windows.questions,
    'tokens': split.windows.tokens,
    'starts': split.windows.starts,
    'passage_of': split.passage_of,
    # JSON of ASCII holds any text, also one that is not valid Unicode.
    'texts': np.frombuffer(json.dumps(texts).encode(), np.uint8),
    'piece_ids': np.concatenate([x.ids for x in split.located]),
    'piece_begins': np.concatenate([x.begins for x in split.located]),
    'piece_ends': np.concatenate([x.ends for x in split.located]),
    'passage_ends': np.cumsum(sizes, dtype=np.int64),
  }
  return arrays if split.labels is None else arrays | {'labels': split.labels}


def _unpack(arrays: dict[str, np.ndarray], facts: dict) -> Split:
  del facts
  texts = json.loads(arrays['texts'].tobytes())
  encoded = encode.unpack(arrays)
  pieces = [
    np.split(arrays[f'piece_{x}'], arrays['passage_ends'][:-1])
    for x in ('ids', 'begins', 'ends')
  ]
  return Split(
    span_windows.Windows(
      encoded, *(arrays[x] for x in ('questions', 'tokens', 'starts'))
    ),
    arrays.get('labels'),
    texts['ids'],
    None if texts['answers'] is None else list(map(tuple, texts['answers'])),
    texts['passages'],
    arrays['passage_of'],
    [offsets.Located(*x) for x in zip(*pieces, strict=True)],
  )


FORMAT = task_data.Format(make, _pack, _unpack, describe, _read.cache_clear)
