"""Writes a trained model as a Hugging Face folder.

  python -m bert_jax.convert --from=PATH --to=PATH --format=hf

--from is the directory of a run, which may be training; the checkpoint is
--step (or RUN@STEP) or the newest undamaged one. Or it is a folder with a
Hugging Face BERT, or one with Google's TensorFlow checkpoint (or PREFIX, if
there are several). Parameters that the source lacks, and tensors that are not
used, are printed.
"""

import dataclasses
from typing import Any

import jax
from absl import flags

from bert_jax import errors
from bert_jax.inference import source
from bert_jax.interop import google, hugging_face, rename
from bert_jax.model import bert_config, classifier
from bert_jax.pretraining import model_card
from bert_jax.runtime import cli
from bert_jax.workdir import paths

# {model: (heads that it must have, heads that it may have)}.
_MODELS = {
  'pretraining': (('mlm', 'pooler', 'nsp'), ()),
  'mlm': (('mlm',), ()),
  'encoder': ((), ('pooler',)),
}
# Forms of one function; any other activation makes another model.
_ACTIVATIONS = ('gelu', 'gelu_tanh')


def _define_flags():
  flags.DEFINE_string(
    'from', None, "A run, or a folder of Hugging Face's or Google's."
  )
  flags.DEFINE_string(
    'to', None, 'Folder to write; an existing export is replaced.'
  )
  flags.DEFINE_enum(
    'format', 'hf', ['hf'], 'What to write: hf, for Hugging Face transformers.'
  )
  flags.DEFINE_integer(
    'step', None, 'Step of the checkpoint; by default the newest undamaged.'
  )
  flags.DEFINE_enum(
    'model',
    None,
    list(_MODELS),
    'Heads to write: pretraining (both heads), mlm or encoder (none); by '
    'default all that the source has.',
  )
  flags.DEFINE_enum(
    'activation',
    None,
    _ACTIVATIONS,
    'The form of GELU that the weights are to be used with, by erf or by tanh; '
    "none is the source's. Weights do not change, outputs change a little.",
  )
  flags.mark_flags_as_required(['from', 'to'])


def choose(params: Any, model: str | None):
  """Returns the parameters to write.

  Args:
    model: one of `pretraining`, `mlm`, `encoder`; None is the class of Hugging
      Face with as many heads as possible.
  """
  held = rename.list_parts(params)
  if model is None:
    fits = (name for name in _MODELS if set(_MODELS[name][0]) <= set(held))
    model = next(fits)
  needed, taken = _MODELS[model]
  lacking = [part for part in needed if part not in held]
  if lacking:
    raise errors.UserError(
      f'the source lacks {" and ".join(lacking)}, which --model={model} needs; '
      'leave --model out to write what there is.'
    )
  return rename.keep_parts(params, {*needed, *taken})


def choose_activation(
  config: bert_config.BertConfig, activation: str | None
) -> bert_config.BertConfig:
  """Returns the config with `gelu` (by erf) or `gelu_tanh`; None keeps it."""
  if activation is None:
    return config
  if config.activation not in _ACTIVATIONS:
    raise errors.UserError(
      f'--activation={activation} is for models with {" or ".join(_ACTIVATIONS)}'
      f', and the source has {config.activation}; leave --activation out.'
    )
  return dataclasses.replace(config, activation=activation)


def describe(
  found: source.Source, params: Any, head: classifier.Head | None
) -> list[str]:
  """Returns what was missing, left over and not written, as lines."""
  report, kept = found.report, rename.list_parts(params)
  dropped = [
    part for part in rename.list_parts(found.params) if part not in kept
  ]
  if found.head is not None and head is None:
    dropped.append('classifier')
  slots = [name for name in report.left_over if google.is_slot(name)]
  rest = [name for name in report.left_over if not google.is_slot(name)]
  lines = []
  for title, names in (
    ('not in the source', report.missing),
    ('in the source, but not used', rest),
    ('left out, as the model has no place for it', dropped),
  ):
    if names:
      lines.append(f'{title} ({len(names)}): {errors.listing(names)}')
  if slots:
    lines.append(
      f"skipped, the optimizer's ({len(slots)}): {errors.listing(slots, most=3)}"
    )
  return lines


def main():
  # The accelerator may be busy with training.
  jax.config.update('jax_platforms', 'cpu')
  given = flags.FLAGS
  # `from` is a Python keyword.
  path, target = given['from'].value, given.to
  found = source.read(path, given.step)
  config = choose_activation(found.config, given.activation)
  params = choose(found.params, given.model)
  card, lines = None, []
  if config != found.config:
    lines.append(
      f'activation: {found.config.activation} in the source, '
      f'{config.activation} as written (--activation)'
    )
  head = found.head if given.model is None else None
  if found.step is not None and found.head is None:
    try:
      run, _ = paths.split_step(path)
      card = model_card.describe_run(run, params, found.step)
    except errors.UserError as error:
      lines.append(f'no model card: {error}')
  about = card, head, found.trained_length
  hugging_face.export(target, params, config, found.tokenizer, *about)
  print(f'wrote {target}, from {found.origin}')
  lines += describe(found, params, head)
  for line in lines:
    print(f'  {line}')


if __name__ == '__main__':
  _define_flags()
  cli.run(main, resumes=False)
