"""Writes a trained model as a Hugging Face folder.

  python -m bert_jax.convert --from=PATH --to=PATH --format=hf

--from is the directory of a run, which may be training; its checkpoint is the
newest undamaged one, or RUN@STEP. Or it is a folder with a Hugging Face BERT, or
one with Google's TensorFlow checkpoint (or PREFIX, if there are several).
Parameters that the source lacks, and tensors that are not used, are printed.
"""

import dataclasses

import jax
from absl import flags

from bert_jax import errors
from bert_jax.inference import source
from bert_jax.interop import google, hugging_face, rename
from bert_jax.pretraining import finish
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
  flags.DEFINE_string('from', None, "A run, or another model's folder.")
  flags.DEFINE_string('to', None, 'Folder to write; an export is replaced.')
  flags.DEFINE_enum('format', 'hf', ['hf'], 'Hugging Face transformers.')
  meaning = 'Heads to write: both, mlm or none; default: all that there are.'
  flags.DEFINE_enum('model', None, [*_MODELS], meaning)
  meaning = (
    'The form of GELU that the weights are to be used with, by erf or by tanh; '
    "none is the source's. Weights do not change, outputs change a little."
  )
  flags.DEFINE_enum('activation', None, _ACTIVATIONS, meaning)
  flags.mark_flags_as_required(['from', 'to'])


def main():
  # The accelerator may be busy with training.
  jax.config.update('jax_platforms', 'cpu')
  f = flags.FLAGS
  path, lines = f['from'].value, []  # a Python keyword
  loaded = source.read(path)
  config, report, card = loaded.config, loaded.report, None
  was, asked = config.activation, f.activation or config.activation
  if asked != was:
    if was not in _ACTIVATIONS:
      raise errors.UserError(
        f'--activation={asked} is for models with {" or ".join(_ACTIVATIONS)}, '
        f'and the source has {was}; leave --activation out.'
      )
    lines.append(
      f'activation: {was} in the source, {asked} as written (--activation)'
    )
    config = dataclasses.replace(config, activation=asked)
  held = rename.list_parts(loaded.params)
  fits = (name for name in _MODELS if {*_MODELS[name][0]} <= {*held})
  needed, taken = _MODELS[f.model or next(fits)]  # all heads that there are
  if lacking := [part for part in needed if part not in held]:
    raise errors.UserError(
      f'the source lacks {" and ".join(lacking)}, which --model={f.model} needs; '
      'leave --model out to write what there is.'
    )
  params = rename.keep_parts(loaded.params, {*needed, *taken})
  head = None if f.model else loaded.head
  if loaded.step is not None and loaded.head is None:
    try:
      run, _ = paths.split_step(path)
      card = finish.describe_run(run, params, loaded.step)
    except errors.UserError as error:
      lines.append(f'no model card: {error}')
  about = card, head, loaded.trained_length
  hugging_face.export(f.to, params, config, loaded.tokenizer, *about)
  parts = rename.list_parts(params)
  dropped = [x for x in held if x not in parts]
  dropped += ['classifier'] if loaded.head is not head else []
  slots = [name for name in report.left_over if google.is_slot(name)]
  rest = [name for name in report.left_over if not google.is_slot(name)]
  for title, names, most in (
    ('not in the source', report.missing, 6),
    ('in the source, but not used', rest, 6),
    ('left out, as the model has no place for it', dropped, 6),
    ("skipped, the optimizer's", slots, 3),
  ):
    if names:
      lines.append(f'{title} ({len(names)}): {errors.listing(names, most)}')
  print('\n  '.join([f'wrote {f.to}, from {loaded.origin}', *lines]))


if __name__ == '__main__':
  _define_flags()
  cli.run(main, resumes=False)
