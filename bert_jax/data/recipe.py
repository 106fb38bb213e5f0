"""What determines the prepared data, apart from the text itself."""

import dataclasses
import json

from bert_jax import errors


@dataclasses.dataclass(frozen=True)
class Recipe:
  """Fields of `config.data` and the command line; the manifest keeps them."""

  inputs: tuple[str, ...]
  layout: str
  language: str
  max_documents: int
  vocab: str
  vocab_size: int
  lowercase: bool
  lengths: tuple[int, ...]
  passes: int
  short_seq_prob: float
  heldout: float
  shards: int
  seed: int

  def check(self):
    if not 0 < self.heldout < 1:
      raise errors.UserError(
        f'heldout={self.heldout} must be a share between 0 and 1.'
      )
    for name in ('passes', 'shards', 'vocab_size'):
      if getattr(self, name) < 1:
        raise errors.UserError(
          f'{name}={getattr(self, name)} must be at least 1.'
        )

    # A record counts the tokens of a text in 16 bits.
    if not self.lengths or min(self.lengths) < 8 or max(self.lengths) > 65535:
      raise errors.UserError(
        f'lengths={self.lengths} must be from 8 to 65535 tokens.'
      )

  def to_dict(self) -> dict:
    # Through JSON, so that it equals what is read back from a file.
    return json.loads(json.dumps(dataclasses.asdict(self)))
