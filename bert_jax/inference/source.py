"""Finds out what kind of model a path names, and reads it."""

import os
from typing import Any, NamedTuple

from bert_jax import errors
from bert_jax.interop import google, hf_load, npz, rename
from bert_jax.model import bert_config
from bert_jax.runtime import files
from bert_jax.tokenization import tokenizer as tokenizer_lib

READ = {'hf': hf_load.read, 'google': google.read, 'npz': npz.read}
_HF_WEIGHTS = ('model.safetensors', 'pytorch_model.bin')


class Source(NamedTuple):
  """A BERT, or what there is of one.

  Attributes:
    params: nested dict of float32 arrays: the encoder and the heads there are.
    config: what the model is.
    with_nsp: whether it has the pooler and the NSP head.
    tokenizer: for its vocabulary.
    report: what the files lacked and had besides.
    origin: where it comes from, for people.
    step: of a run's checkpoint, else None.
  """

  params: Any
  config: bert_config.BertConfig
  with_nsp: bool
  tokenizer: tokenizer_lib.Tokenizer
  report: rename.Report
  origin: str
  step: int | None = None


def detect_kind(path: str) -> str:
  """Returns run, hf, google or npz.

  Raises:
    errors.UserError: if it is none of them.
  """
  if os.path.isfile(path) and path.endswith('.npz'):
    return 'npz'
  if os.path.isfile(path.removesuffix('.index') + '.index'):
    return 'google'
  if os.path.isfile(path):
    raise errors.UserError(
      f'{path} is no checkpoint and no .npz file. A StableHLO file is a program '
      'and cannot be read as a model; name what it was written from.'
    )
  if not os.path.isdir(path):
    raise errors.UserError(
      f'{path} is no folder, no checkpoint and no .npz file; name one of them.'
    )
  names = os.listdir(path)
  weights = any(name.startswith(_HF_WEIGHTS) for name in names)
  # Some folders have both a config.json and Google's files.
  if not weights and any(name.endswith('.index') for name in names):
    return 'google'
  if 'config.json' not in names:
    raise errors.UserError(
      f'{path} has neither a config.json nor a .index; name the --workdir of '
      "a run, a Hugging Face folder or Google's, or an .npz file."
    )
  config = files.read_json(os.path.join(path, 'config.json'))
  return 'hf' if 'model_type' in config else 'run'


def read(path: str, step: int | None = None) -> Source:
  """Reads a BERT of any kind.

  Args:
    path: the directory of a run, which may be training; a folder of Hugging
      Face's or Google's, or the prefix of Google's checkpoint; an .npz file.
    step: which checkpoint of a run; None is the newest undamaged one.

  Raises:
    errors.UserError: if it is missing, damaged or no BERT.
  """
  found = detect_kind(path)
  if found == 'run':
    # Imported here: Orbax takes half a second, which other models do without.
    from bert_jax.inference import trained_run

    *model, facts = trained_run.read(path, step)
    origin = f'step {facts["step"]:,}, fingerprint={facts["fingerprint"]}'
    report = rename.Report([], [])
    return Source(*model, report, origin, facts['step'])
  if step is not None:
    raise errors.UserError(
      f'{path} is not the directory of a run, so --step={step} means '
      'nothing; leave it out.'
    )
  return Source(*READ[found](path), origin=path)
