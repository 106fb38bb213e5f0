"""The task of answering questions with a part of a passage."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import (
  metrics,
  span_answers,
  span_windows,
  supervised,
)
from bert_jax.finetuning.readers import splits, squad
from bert_jax.model import losses
from bert_jax.runtime import files


class Spans(supervised.Supervised):
  """Answers to questions; predictions are `span_answers.Answers`."""

  name = 'spans'
  pipeline, auto = 'question-answering', 'QuestionAnswering'
  counted = 'questions'
  unit = place = 'question'
  predicts = (
    'the answer to a question, as a part of a passage, or that it has none'
  )
  constant = 'the commonest answer; none, where questions may have none'
  extension = '.json'
  outputs = splits.QUESTIONS
  tuned = (
    'a question has no answer where that scores more than {:.3f} above the best '
    'one'
  )
  takes_label = False  # the answers are in the file

  def read_file(self, source, split, path):
    return squad.read(path)

  def list_labels(self, source, contents):
    """Returns two outputs; checks that answers are known and, in 1.1, exist."""
    for split, content in contents.items():
      unknown = [x.id for x in content.units if x.answers is None]
      without = [x.id for x in content.units if x.answers == ()]
      if unknown and split != 'test':
        count, advice = len(unknown), 'only a test file may lack them.'
        problem = f'whose answers are not given, such as {unknown[0]!r}'
      elif without and not source.unanswerable:
        count, advice = len(without), 'configs/squad.py:v2 allows them.'
        problem = f'without an answer, such as {without[0]!r}'
      else:
        continue
      what = f'{errors.count(count, "question")} of {split}'
      raise errors.UserError(f'{content.path}: {what} {problem}; {advice}')
    return 'start', 'end'

  def encode(self, how, content, labels, split=''):
    """Encodes questions; drops training questions whose answer is lost."""
    rows, lost = span_windows.encode_questions(how, content, split == 'train')
    known, done = rows.answers is not None, 'kept for their score'
    none = f'{rows.answers.count([]):,} without' if known else 'unknown'
    if split == 'train':
      done = 'left out'
    counts = [
      f'{errors.count(rows.count(), "question")} (answers: {none})',
      errors.count(len(rows.passages), 'passage'),
      errors.count(rows.size, 'window'),
    ]
    warnings = {f'whose answer {what}, {done}': x for what, x in lost.items()}
    if split == 'train':
      gone = set().union(*lost.values())
      warnings['whose first answer is misplaced, learnt from another'] = [
        x.id
        for x in content.units
        if x.answers and x.id not in gone
        if not squad.is_placed(content.passages[x.passage], *x.answers[0])
      ]
    return rows, {'counts': counts, 'warnings': warnings}

  def list_shapes(self, f, module, phase, rows):
    pairs = jax.ShapeDtypeStruct((rows, 2), jnp.int32)
    shapes = super().list_shapes(f, module, phase, rows)
    return shapes | {'labels': pairs, 'starts': pairs}

  def compute_sums(self, module, params, batch, key, settings=None):
    """Returns ({metric: sum over a batch}, `span_answers.rank` of its logits).

    The loss of a row is the mean of those of the first and of the last token. A
    row counts as a hit if both are right. In training nothing is ranked.
    """
    logits = supervised.apply(module, params, batch, key)  # [B, S, 2]
    ranked = {}
    if key is None:
      most = settings.max_answer_length
      ranked = span_answers.rank(logits, batch, most)
    # Padding cannot be an answer, so that it changes no loss. In Google's code
    # and in transformers it competes with the tokens.
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

  def list_sums(self, f, module):
    return supervised.SUMS, {}, None

  def decide(self, split, kept, settings, tune):
    answers = span_answers.choose(split, kept, settings, tune)
    return answers, settings._replace(threshold=answers.threshold)

  def list_metrics(self, labels, f=None):
    return 'f1', 'exact_match'

  def compare(self, names, labels, split, predicted, train=None):
    if train is None:
      exact, f1 = predicted.scores.mean(0)
      return {'metrics': {'f1': float(f1), 'exact_match': float(exact)}}
    unanswerable = predicted.threshold is not None
    constants = {
      span_answers.predict_constant(x.answers, unanswerable)
      for x in (train, split)
    }
    size = split.count()
    others = (span_answers.score([x] * size, split.answers) for x in constants)
    best = max(others, key=lambda x: x[:, 1].mean())  # by F1

    def divide(sums):
      return {'f1': sums[1] / size, 'exact_match': sums[0] / size}

    trials = dict.fromkeys(('f1', 'exact_match'), size)
    return metrics.compare_sums(predicted.scores, best, divide, trials)

  def find_problem(self, scored, predicted):
    if not any(x.texts for x in predicted.candidates):
      return 'no answer has a finite score'
    different = np.unique(predicted.texts, return_inverse=True)[1]
    return metrics.find_problem(scored, different)

  def write_split(self, folder, name, labels, split, predicted):
    """Writes the three files of Google's run_squad.py."""
    none, candidates = predicted.threshold is not None, predicted.candidates
    best = [span_answers.list_best(x, none) for x in candidates]
    written = {'predictions': predicted.texts, 'nbest_predictions': best}
    if none:
      written['null_odds'] = [x.odds for x in candidates]
    for kind, values in written.items():
      path = os.path.join(folder, f'{name}.{kind}.json')
      files.write_json(path, dict(zip(split.ids, values, strict=True)))

  def read_given(self, job):
    return squad.read(job.given)

  def write_given(self, job, content, split, predicted):
    """Writes {id of a question: answer}, as the evaluation scripts read it."""
    texts = dict(zip(split.ids, predicted.texts, strict=True))
    files.write_json(job.output, texts)


TASK = Spans()
