"""The task of answering questions with a part of a passage."""

import functools
import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  encode,
  metrics,
  predictions,
  span_answers,
  span_windows,
  supervised,
  task_data,
)
from bert_jax.finetuning.readers import data_files, sampling, squad
from bert_jax.inference import fine_tuned
from bert_jax.model import classifier, losses
from bert_jax.runtime import files
from bert_jax.tokenization import offsets

LABELS = 'start', 'end'


class Spans(supervised.Supervised):
  """Answers to questions; what is decided are `span_answers.Answers`."""

  name = 'spans'
  card = supervised.Card(
    'question-answering', 'QuestionAnswering', 'questions', 'questions'
  )
  extension = '.json'
  outputs = (squad.EXTENSION,)
  doing = 'answering'
  takes_label = False  # the answers are in the file

  # From files to rows.

  def read(self, config, tokenizer):
    """Reads and encodes the files; training rows whose answer is lost go."""
    splits, facts = {}, {}
    length, settings = max(config.phases.seq_length), self.get_settings(config)
    read = _read(data_files.get_source(config), tokenizer)
    for name, (content, located) in read.items():
      if not config.finetuning.unanswerable:
        _check_answers(name, content)
      rows = content.questions
      spans, lost = span_windows.find_spans(content, located)
      if name == 'train':
        left_out = {*lost['wrong_start'], *lost['not_found']}
        kept = [i for i, x in enumerate(rows) if x.id not in left_out]
        rows, spans = [rows[i] for i in kept], spans[kept]
        if not rows:
          raise errors.UserError(
            f'{content.path}: no answer is where answer_start says; correct it.'
          )
      split = span_windows.encode_questions(
        tokenizer, content._replace(questions=rows), located, length, settings
      )
      if split.answers is not None:
        labels = span_windows.label(split.windows, spans)
        split = split._replace(labels=labels)
      splits[name] = split
      repeated = _find_repeated(read['train'][0], content, name)
      facts[name] = _list_facts(content.path, split, lost, repeated)
    return task_data.combine(splits, LABELS, tokenizer, facts)

  def pack(self, split):
    texts = {
      name: getattr(split, name) for name in ('ids', 'answers', 'passages')
    }
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

  def unpack(self, arrays, facts):
    texts = json.loads(arrays['texts'].tobytes())
    windows = (arrays[x] for x in ('questions', 'tokens', 'starts'))
    pieces = [
      np.split(arrays[f'piece_{x}'], arrays['passage_ends'][:-1])
      for x in ('ids', 'begins', 'ends')
    ]
    return span_windows.Questions(
      span_windows.Windows(encode.unpack(arrays), *windows),
      arrays.get('labels'),
      texts['ids'],
      None if texts['answers'] is None else list(map(tuple, texts['answers'])),
      texts['passages'],
      arrays['passage_of'],
      [offsets.Located(*x) for x in zip(*pieces, strict=True)],
    )

  def describe_data(self, manifest):
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
        if count := x[field]['count']:
          lines.append(
            f'WARNING: {errors.count(count, "question")} of {x["path"]} whose '
            f'answer {what}, {done}; the first is {x[field]["first"]!r}'
          )
    return lines

  def list_columns(self, config):
    """Returns no columns: a file of questions has none."""
    return ()

  # From rows to a loss.

  def make_batch(self, data, split, rows, length):
    """Returns what the model reads; labels and where answers may start, [b, 2]."""
    made, labels = split.windows, np.zeros((len(rows), 2), np.int32)
    if split.labels is not None:
      labels = split.labels[rows]
    return encode.make_batch(made.encoded, rows, length, data.pad_id) | {
      'labels': labels,
      'starts': made.starts[rows],
      'label_weights': np.ones(len(rows), np.float32),
    }

  def list_shapes(self, config, module, phase, rows):
    pair = jax.ShapeDtypeStruct((rows, 2), jnp.int32)
    return fine_tuned.list_inputs(module, rows, phase.seq_length) | {
      'labels': pair,
      'starts': pair,
      'label_weights': jax.ShapeDtypeStruct((rows,), jnp.float32),
    }

  def make_compute(self, settings):
    """Returns the sums for answers of the settings' length."""
    return functools.partial(self.compute_sums, most=settings.max_answer_length)

  def compute_sums(self, module, params, batch, key, *, most=0):
    """Returns ({metric: sum over a batch}, `span_answers.rank` of its logits).

    The loss of a row is the mean of the cross entropies of the first and of the
    last token. A row counts as a hit if both are right. In training, when dropout
    is on, nothing is ranked.

    Args:
      most: tokens of an answer, at most.
    """
    logits = supervised.apply(module, params, batch, key)  # [B, S, 2]
    ranked = {}
    if key is None:
      ranked = span_answers.rank(logits, batch, most)
    # Padding cannot be an answer, so that it changes no loss. In Google's code and in
    # transformers it competes with the tokens.
    real = batch['input_mask'][..., None]
    logits = jnp.where(real == 1, logits, jnp.finfo(jnp.float32).min)
    logits = jnp.swapaxes(logits, 1, 2)  # [B, 2, S]
    weights = jnp.broadcast_to(
      batch['label_weights'][:, None], batch['labels'].shape
    )
    loss, _ = losses.sum_tokens(logits, batch['labels'], weights)
    right = jnp.all(jnp.argmax(logits, -1) == batch['labels'], -1)
    hits = jnp.sum(right * batch['label_weights'])
    return {'cross_entropy': loss / 2, 'accuracy': hits}, ranked

  def expect_loss(self, config, module):
    """Returns None: the loss of guessing depends on how long windows are."""

  def describe_batch(self, batch):
    tokens, labels = batch['input_mask'].sum(), batch['labels']
    return [
      f'first batch: {len(labels)} windows, '
      f'{1 - tokens / batch["input_mask"].size:.1%} padding, '
      f'{(labels[:, 0] > 0).mean():.1%} hold the answer'
    ]

  # From predictions to scores and files.

  def keep(self, split, kept, rows, found):
    return predictions.fill(split, kept, rows, found)

  def get_settings(self, config):
    """Returns how answers are found; the threshold is not tuned yet."""
    c = config.finetuning
    return classifier.Spans(
      c.doc_stride,
      c.max_query_length,
      c.max_answer_length,
      0.0 if c.unanswerable else None,
    )

  def decide(self, split, kept, settings, tune):
    """Returns the answers, and the settings with the threshold by which."""
    answers = span_answers.choose(split, kept, settings, tune)
    return answers, settings._replace(threshold=answers.threshold)

  def list_metrics(self, labels, glue=''):
    return 'f1', 'exact_match'

  def measure(self, names, labels, split, found):
    return span_answers.summarise(found.scores)

  def compare(self, names, labels, split, found, train):
    """Scores answers; the constant is none, or the commonest of training."""
    unanswerable = found.threshold is not None
    constant = span_answers.predict_constant(train.answers, unanswerable)
    nothing = span_answers.score([constant] * len(split.ids), split.answers)
    return span_answers.compare(found.scores, nothing)

  def find_problem(self, names, scored, found):
    """Returns the problem if no answer is finite, or as of any task."""
    if not any(x.texts for x in found.candidates):
      return 'no answer has a finite score'
    different = np.unique(found.texts, return_inverse=True)[1]
    return metrics.find_problem('f1', scored, different)

  def is_labelled(self, split):
    return split.answers is not None

  def count(self, split):
    return len(split.ids)

  def list_results(self, settings):
    return {'threshold': settings.threshold}

  def describe_scores(self, named):
    """Returns the scores and, of a run, the threshold."""
    lines = super().describe_scores(named)
    threshold = named.get('dev', {}).get('threshold')
    if threshold is not None:
      lines.append(
        f'a question has no answer where that scores more than '
        f'{threshold:.3f} above the best one (tuned on dev)'
      )
    return lines

  def write_split(self, folder, name, labels, split, found):
    """Writes the three files of Google's run_squad.py."""
    candidates, unanswerable = found.candidates, found.threshold is not None
    written: dict[str, list] = {
      'predictions': found.texts,
      'nbest_predictions': [
        span_answers.list_best(x, unanswerable) for x in candidates
      ],
    }
    if unanswerable:
      written['null_odds'] = [x.odds for x in candidates]
    for kind, values in written.items():
      path = os.path.join(folder, f'{name}.{kind}.json')
      files.write_json(path, dict(zip(split.ids, values, strict=True)))

  def describe_prediction(self, config, labels):
    none = ', or that there is none' if config.finetuning.unanswerable else ''
    return f'the answer to a question, as a part of a passage{none}'

  def describe_constant(self, config, labels):
    if config.finetuning.unanswerable:
      return 'never answers'
    return 'always gives the commonest answer of training'

  # Predictions for a user's file.

  def read_given(self, job):
    """Reads questions; they are scored if the file has the right answers."""
    head, tokenizer = job.model.head, job.model.tokenizer
    content = squad.read(job.given)
    located = offsets.locate(tokenizer, content.passages)
    split = span_windows.encode_questions(
      tokenizer, content, located, head.max_length, head.spans
    )
    return supervised.Given(split)

  def write_given(self, job, given, found):
    """Writes {id of a question: answer}, as the evaluation scripts read it."""
    answers = dict(zip(given.rows.ids, found.texts, strict=True))
    files.write_json(job.output, answers)


TASK = Spans()


def _read(source, tokenizer):
  """Returns {split: (content of its file, pieces of its passages)}.

  Without a dev file, the questions about some passages are held out.
  """
  read = {x: squad.read(y) for x, y in data_files.find_files(source).items()}
  read = sampling.choose_groups(
    read,
    source.heldout,
    source.max_documents,
    lambda content: [x.passage for x in content.questions],
    squad.take,
  )
  found = {}
  for split, content in read.items():
    unknown = [x.id for x in content.questions if x.answers is None]
    if unknown and split != 'test':
      count = errors.count(len(unknown), 'question')
      raise errors.UserError(
        f'{content.path}: the answers to {count} of {split} are not given, such '
        f'as that to {unknown[0]!r}; only a test file may lack them.'
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
    count = errors.count(len(without), 'question')
    raise errors.UserError(
      f'{content.path}: {count} of {name} without an answer, such as '
      f'{without[0]!r}; use configs/squad.py:v2, in which they may.'
    )


def _list_facts(path, split, lost, repeated) -> dict[str, Any]:
  """Returns the facts about a split, for the manifest."""
  answers = split.answers
  return {
    'path': path,
    'questions': len(split.ids),
    'passages': len(split.passages),
    # None if the answers are not known.
    'unanswerable': None if answers is None else answers.count(()),
    'rows': split.size,
    'longest': int(split.lengths.max()),
    **{
      what: {'count': len(found), 'first': found[0] if found else None}
      for what, found in lost.items()
    },
    'repeated': task_data.describe_repeated(path, repeated),
  }
