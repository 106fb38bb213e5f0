"""The recipe: everything but the text that determines the prepared data."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence

from bert_jax import errors
from bert_jax.runtime import files, storage

if typing.TYPE_CHECKING:
  from ml_collections import config_dict

_OF_PAIRS = 'pack', 'short_seq_prob', 'negatives'  # fields for pairs only
_MOST_PASSES = 65535  # the passes of a document are counted in 16 bits


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Fields of a config, saved in the manifest; `make_recipe` makes it."""

  inputs: tuple[str, ...]
  weights: tuple[float, ...]
  layout: str
  language: str
  field: str
  min_chars: int
  max_documents: int
  vocab: str
  vocab_size: int
  lowercase: bool
  strip_accents: bool | None  # None: undecided, see `accents`
  lengths: tuple[int, ...]  # of rows, all different, ascending
  passes: int
  short_seq_prob: float
  pack: int
  negatives: str
  heldout: float
  shards: int
  seed: int
  size_power: float = 1.0
  general_share: float = 0.0  # of the last input; 0 is none
  add_words: int = 0  # to `vocab`
  added: tuple = ()  # the words that are kept whole, `tokenizer.AddedWord`
  rows: str = 'pairs'

  def get_language(self, source: int) -> str:
    """Returns the language of an input, by its number."""
    languages = self.language.split(',')
    return languages[source if len(languages) > 1 else 0]

  def to_dict(self) -> dict:
    usual = {x.name: x.default for x in dataclasses.fields(self)}
    given = dataclasses.asdict(self).items()
    differing = {name: x for name, x in given if x != usual[name]}
    # Through JSON, so that the dict equals one that was read from a file.
    return json.loads(json.dumps(differing))


def make_recipe(config: config_dict.ConfigDict) -> Recipe:
  """Returns how the data of a config is prepared."""
  # Here, so that worker processes, which get a recipe, start sooner.
  from bert_jax.config import check_fields
  from bert_jax.data import accents

  c = config.data
  check_fields(config, 'data.', 'phases.seq_length', 'seed')
  check_inputs(c)
  if not config.phases.seq_length:
    raise errors.UserError('no length of rows is given; give one, such as 128.')
  names = [field.name for field in dataclasses.fields(Recipe)]
  fields = {name: c[name] for name in names if name in c}
  fields.update(
    inputs=list_inputs(c),
    general_share=c.general_share if c.general else 0.0,
    weights=tuple(float(weight) for weight in c.weights),
    strip_accents=accents.read_choice(c.strip_accents, c.lowercase),
    lengths=tuple(sorted(set(config.phases.seq_length))),
    seed=config.seed,
    added=read_added(c.vocab),
  )
  return Recipe(**fields)


def list_inputs(data: config_dict.ConfigDict) -> tuple[str, ...]:
  """Returns the inputs of a config; the general text, if any, is the last."""
  return *data.input.split(','), *[data.general] * bool(data.general)


def added_path(vocab: str) -> str:
  """Returns the path of the words that a vocabulary file's model keeps whole."""
  return f'{vocab}.added.json'


def read_added(vocab: str) -> tuple[tuple, ...]:
  """Returns the fields of each `tokenizer.AddedWord` of a vocabulary file."""
  path = added_path(vocab)
  listed = files.load_json(path) if vocab and storage.exists(path) else ()
  return tuple(map(tuple, listed))


def check_inputs(data: config_dict.ConfigDict):
  """Raises errors.UserError unless inputs, weights, rows etc. fit together."""
  from bert_jax.config import FIELDS  # as in `make_recipe`

  inputs, weights = list_inputs(data), data.weights
  count = len(inputs) - bool(data.general)
  if weights and len(weights) != count:
    raise errors.UserError(
      f'weights={weights} are {len(weights)}, but there are {count} '
      'inputs; give one for each, or none.'
    )
  if data.general in inputs[:count] or ',' in data.general:
    raise errors.UserError(
      f'data.general={data.general} must be one input, and none of data.input.'
    )
  if (count := len(data.language.split(','))) not in (1, len(inputs)):
    raise errors.UserError(
      f'language={data.language} are {count}, but there are {len(inputs)} inputs; '
      'give one for each, or one for all.'
    )
  for name in _OF_PAIRS if data.rows != 'pairs' else ():
    usual = FIELDS[f'data.{name}'].default
    if data[name] != usual:
      raise errors.UserError(
        f'data.{name}={data[name]} is for pairs, and data.rows={data.rows} makes '
        f'none; leave it at {usual}.'
      )
  _check_passes(data.passes, weights)


def weigh_by_size(recipe: Recipe, sizes: Sequence[int]) -> Recipe:
  """Returns a recipe whose weights include a power of the inputs' sizes.

  Shares are those of XLM-R (arXiv 1911.02116), and all the text is used as often
  as without the power, on average. Then general text gets its share.

  Args:
    sizes: about how many bytes of text each input has.
  """
  share = recipe.general_share
  if recipe.size_power == 1 and not share:
    return recipe
  own = sizes[:-1] if share else sizes
  scale = sum(own) / sum(x**recipe.size_power for x in own)
  powers = (scale * max(x, 1) ** (recipe.size_power - 1) for x in own)
  given = recipe.weights or (1.0,) * len(own)
  weights = tuple(a * b for a, b in zip(given, powers, strict=True))
  if share:
    used = sum(a * b for a, b in zip(weights, own, strict=True))
    wanted = used * share / (1 - share) / max(sizes[-1], 1)
    weights += (min(wanted, 1000.0),)  # the most that `data.weights` may be
  _check_passes(recipe.passes, weights)
  return dataclasses.replace(recipe, weights=weights)


def _check_passes(passes: int, weights: Sequence[float]):
  most = passes * max(weights, default=1)
  if most > _MOST_PASSES:
    raise errors.UserError(
      f'data.passes={passes} with the weights {weights}, which data.size_power and '
      f'data.general_share change, are {most:g} passes over a document; give at '
      f'most {_MOST_PASSES}.'
    )
