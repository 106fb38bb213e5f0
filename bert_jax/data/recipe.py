"""The recipe: everything but the text that determines the prepared data."""

import dataclasses
import json
import re

from bert_jax import errors

# Where a random second text comes from: a document of the same input, or any.
NEGATIVES = ('input', 'uniform')

# ISO 639 and, with a script or variety, what sentencex knows: ko, yue, zh-hans.
_LANGUAGE = re.compile('[a-z]{2,3}(-[a-z]+)*')


def check_language(language: str):
  """Raises errors.UserError if it has not the form of a language's code.

  Codes without rules of their own are allowed, see `sentences.split`.
  """
  if not _LANGUAGE.fullmatch(language):
    raise errors.UserError(
      f'language={language!r} is no code of ISO 639; give two or three '
      "lower-case letters, such as 'ko' for Korean."
    )


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Fields of `config.data` or the command line, saved in the manifest.

  Attributes:
    strip_accents: None as long as it is undecided, see `accents`; a manifest
      has the decision.
  """

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
  strip_accents: bool | None
  lengths: tuple[int, ...]
  passes: int
  short_seq_prob: float
  pack: int
  negatives: str
  heldout: float
  shards: int
  seed: int

  def check(self):
    """Raises errors.UserError for values that cannot be used."""
    check_language(self.language)
    if not 0 < self.heldout < 1:
      raise errors.UserError(
        f'heldout={self.heldout} must be a share between 0 and 1.'
      )
    if not 0 <= self.short_seq_prob <= 1:
      raise errors.UserError(
        f'short_seq_prob={self.short_seq_prob} must be from 0 to 1.'
      )
    if self.shards < 0:
      raise errors.UserError(
        f'shards={self.shards} must be positive, or 0 for as many as the text '
        'needs.'
      )
    for name in ('passes', 'vocab_size', 'pack'):
      if getattr(self, name) < 1:
        raise errors.UserError(
          f'{name}={getattr(self, name)} must be at least 1.'
        )
    if self.weights and len(self.weights) != len(self.inputs):
      raise errors.UserError(
        f'weights={self.weights} are {len(self.weights)}, but there are '
        f'{len(self.inputs)} inputs; give one for each, or none.'
      )
    if any(not 0 < weight <= 1000 for weight in self.weights):
      raise errors.UserError(
        f'weights={self.weights} must be above 0 and at most 1000.'
      )
    # The passes of a document are counted in 16 bits.
    most = self.passes * max(self.weights, default=1)
    if most > 65535:
      raise errors.UserError(
        f'passes={self.passes} with weights={self.weights} are {most:g} passes '
        'over a document; give at most 65535.'
      )
    # A record counts the tokens of a text in 16 bits.
    if not self.lengths or min(self.lengths) < 8 or max(self.lengths) > 65535:
      raise errors.UserError(
        f'lengths={self.lengths} must be from 8 to 65535 tokens.'
      )

  def to_dict(self) -> dict:
    # Through JSON, so that the dict equals one that was read from a file.
    return json.loads(json.dumps(dataclasses.asdict(self)))
