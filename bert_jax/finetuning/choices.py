"""The task of choosing one of several texts (arXiv 1810.04805, section 4.4).

Choice i of a row is encoded as a pair of the row's text and `pair choice`,
where `pair` is the common beginning of all choices, if any. The model gives
each choice a score: the product of one vector with C, the final vector of
[CLS]. The softmax is over the choices' scores.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import errors
from bert_jax.finetuning import encode, supervised, tables
from bert_jax.finetuning.readers import examples, splits, table_files
from bert_jax.parallel import row_keys

INPUTS = 'input_ids', 'input_mask', 'segment_ids'
_USUAL = 4  # choices of a row in SWAG, if no data is read


@dataclasses.dataclass(frozen=True)
class ChoiceRows(encode.Rows):
  """R rows of N choices, whose pairs follow one another in `encoded`, R N."""

  choices: int  # N

  @property
  def size(self):
    return super().size // self.choices

  @property
  def lengths(self):
    """Returns the tokens of each row's longest choice, int [R]."""
    return self.encoded.lengths.reshape(-1, self.choices).max(1)

  def make_inputs(self, rows, length, pad_id):
    """Returns ids, masks and segments of all choices, [b, N, S]."""
    pairs = rows[:, None] * self.choices + np.arange(self.choices)  # [b, N]
    batch = super().make_inputs(pairs.ravel(), length, pad_id)
    return {name: x.reshape(*pairs.shape, -1) for name, x in batch.items()}


class Choices(supervised.Supervised):
  """One of several choices, equally many in each row; `labels` are ()."""

  name = 'choice'
  pipeline, auto = 'multiple-choice', 'MultipleChoice'
  predicts = 'which of several texts goes best with another'
  cut = 'choice'
  columns, needed = 3, ('text', 'choices')

  def list_labels(self, source, contents):
    """Returns (); rows of all files have equally many choices."""
    counts = {split: len(x.pairs[0]) for split, x in contents.items()}
    if len(set(counts.values())) > 1:
      said = ', '.join(f'{split} has {n}' for split, n in counts.items())
      raise errors.UserError(
        f'rows must have equally many choices, but of {said}; fill them up.'
      )
    return ()

  def read(self, path, columns, labelled, asked=splits.FIELDS):
    """Returns the rows of a table; each `pair` is a tuple of all choices."""
    table = table_files.read(path)
    rows = examples.choose_columns(table, columns, labelled, asked)
    choices = _read_choices(table, columns.choices, asked.choices)
    units = [
      x._replace(pair=tuple(f'{x.pair or ""} {y}' for y in each))
      for x, each in zip(rows.units, choices, strict=True)
    ]
    return dataclasses.replace(rows, units=units)

  def encode(self, how, content, labels, split=''):
    texts = encode.tokenize(how.tokenizer, content.texts)
    repeated = [
      ids for ids, x in zip(texts, content.pairs, strict=True) for _ in x
    ]
    pairs = [y for x in content.pairs for y in x]
    tokenized = encode.tokenize(how.tokenizer, pairs)
    encoded = encode.join(how.tokenizer, repeated, tokenized, how.length)
    choices = len(content.pairs[0])
    numbers = None
    if all(x.label for x in content.units):
      numbers = examples.number_labels(content, [*map(str, range(choices))])
    facts = tables.list_facts(content)
    facts['counts'].append(errors.count(choices, 'choice'))
    return ChoiceRows(encoded, numbers, choices), facts

  def list_shapes(self, f, module, phase, rows):
    shape = rows, f.num_choices or _USUAL, phase.seq_length  # [B, N, S]
    inputs = dict.fromkeys(INPUTS, jax.ShapeDtypeStruct(shape, jnp.int32))
    return super().list_shapes(f, module, phase, rows) | inputs

  def compute_sums(self, module, params, batch, key, settings=None):
    """Returns the sums, and {'logits': [B, N]}."""
    rows, choices, length = batch['input_ids'].shape
    pairs = {name: batch[name].reshape(-1, length) for name in INPUTS}
    if key is not None:
      key = row_keys.for_parts(key, choices)
    logits = supervised.apply(module, params, pairs, key)  # [B N, 1]
    logits = logits.reshape(rows, choices)
    return supervised.sum_classes(logits, batch), {'logits': logits}

  def list_sums(self, f, module):
    return supervised.SUMS, {}, math.log(f.num_choices or _USUAL)

  def list_metrics(self, labels, f=None):
    return ('accuracy',)


TASK = Choices()


def _read_choices(table, name, asked) -> list[tuple[str, ...]]:
  if name and name in table.names:
    choices = [_read_list(table, *x, name) for x in table.rows]
  else:
    start = int(f'{name}0' not in table.names)  # 1 in COPA and PIQA
    numbered = [f'{name}{start + i}' for i in range(len(table.names))]
    columns = [x for x in numbered if x in table.names]
    if not name or columns != numbered[: max(len(columns), 2)]:
      problem = f'has no column {name!r} with lists, nor {name}1 and {name}2'
      examples.refuse_columns(table, problem, asked)
    choices = []
    for line, row in table.rows:
      # JSON's null would be learnt as an empty choice.
      if lacking := [x for x in columns if row.get(x) is None]:
        problem = f'has no text in {lacking[0]!r}; all rows need equally many.'
        raise errors.at_line(table.path, line, problem)
      texts = (examples.get_text(table, line, row, x) for x in columns)
      choices.append(tuple(texts))
  first, count = table.rows[0][0], len(choices[0])
  for (line, _), each in zip(table.rows, choices, strict=True):
    if len(each) != count:
      problem = f'has {len(each)} choices, line {first} has {count}; all rows '
      raise errors.at_line(table.path, line, f'{problem}need equally many.')
  return choices


def _read_list(table, line, row, name) -> tuple[str, ...]:
  value = row.get(name)
  texts = isinstance(value, list) and all(isinstance(x, str) for x in value)
  if not texts or len(value) < 2:
    problem = f'has in {name!r} what is not a list of two or more texts'
    raise errors.at_line(table.path, line, f'{problem}; correct that line.')
  return tuple(value)
