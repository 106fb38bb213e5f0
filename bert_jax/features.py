"""Computes a model's hidden states and attention for sentences.

  python -m bert_jax.features --model=DIR --input=sentences.txt \\
    --output=features.npz --layers=concat_last_4

DIR is the workdir of a run, its export/ or another model that bert_jax.convert
reads. --input has a sentence per line, or a pair separated by a tab; sentences
may also be given as arguments, each in quotes. Line i, from 0, becomes in the
.npz

  tokens_i     [S]            text, with [CLS] and [SEP], without padding
  hidden_i     [S, D]         float32; concat_last_4 gives [S, 4 D], and all
                              [L + 1, S, D]: the embeddings, then each layer
  attention_i  [L, H, S, S]   float32, with --attention: from (its rows sum
                              to 1), to

  python -m bert_jax.features --model=DIR --attention_plot=map.png \\
    --layer=1 --head=0 "the man went to the store ."

draws where each token looks. Layers and heads count from 0.
"""

import functools
import zipfile
from collections.abc import Iterable

import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.finetuning.readers import table_files
from bert_jax.inference import (
  attention_plot,
  hidden_states,
  source,
  trained_length,
)
from bert_jax.runtime import cli, files, progress
from bert_jax.tokenization import unknown


def save(path: str, features: Iterable[hidden_states.Features], total: int):
  """Writes features, one by one and atomically, to a file for numpy.load.

  Sentence i is saved as `tokens_i`, `hidden_i` and, if computed, `attention_i`.
  """
  with progress.Progress(total, 'sentences', 'features') as bar:
    files.write_file(path, lambda new: _write(new, features, bar))


def _write(path, features, bar):
  # Like numpy.savez, which would need all arrays at once.
  with zipfile.ZipFile(path, 'w') as archive:
    for i, found in enumerate(features):
      arrays = {'tokens': np.array(found.tokens), 'hidden': found.hidden}
      if found.attention is not None:
        arrays['attention'] = found.attention
      for name, array in arrays.items():
        with archive.open(f'{name}_{i}.npy', 'w', force_zip64=True) as entry:
          np.lib.format.write_array(entry, array, allow_pickle=False)
      bar.update(1)


def read_texts(path: str) -> list[str | tuple[str, str]]:
  """Reads a sentence per line, or a pair; the file may be compressed."""
  lines = table_files.read_text(path).split('\n')
  if not lines[-1]:
    lines.pop()
  if not lines:
    raise errors.UserError(f'{path} has no sentence; give a file with some.')
  return [_split(line, i, path) for i, line in enumerate(lines, 1)]


def _split(line, number, path):
  texts = tuple(line.removesuffix('\r').split('\t'))
  if len(texts) > 2:
    problem = f'has {len(texts)} texts with tabs between; give one or a pair.'
    raise errors.at_line(path, number, problem)
  return texts[0] if len(texts) == 1 else texts


def _define_flags():
  flags.DEFINE_string(
    'model', None, 'A run, its export or another trained model.'
  )
  flags.DEFINE_string('input', None, 'File with a sentence or pair per line.')
  flags.DEFINE_string('output', None, 'The .npz to write.')
  flags.DEFINE_enum(
    'layers', 'last', [*hidden_states.LAYERS], 'Layers to write, see above.'
  )
  flags.DEFINE_boolean('attention', False, 'Write attention maps too.')
  flags.DEFINE_integer('batch_size', 32, 'Sentences per batch.', 1)
  flags.DEFINE_string(
    'attention_plot', None, 'A .png to draw the attention of one sentence in.'
  )
  flags.DEFINE_integer(
    'layer', None, 'Layer to draw, from 0; by default the last.'
  )
  flags.DEFINE_integer('head', None, 'Head to draw, from 0; by default all.')
  flags.mark_flag_as_required('model')


def main(argv: list[str]):
  f = flags.FLAGS
  texts = [_split(text, i, 'the arguments') for i, text in enumerate(argv[1:])]
  _check_flags(f, texts)
  texts = texts or read_texts(f.input)
  if f.attention_plot and len(texts) != 1:
    raise errors.UserError(
      f'--attention_plot draws one sentence, not {len(texts)}; give it as an '
      'argument, in quotes.'
    )
  model = source.read(f.model)
  if f.attention_plot:
    attention_plot.check(model.config, f.layer, f.head)
  given = [(x,) if isinstance(x, str) else x for x in texts]
  rows = [model.tokenizer.encode(*x)['input_ids'] for x in given]
  flat = [text for one in given for text in one]
  name = f.input or 'the sentences'
  unknown.tell(model.tokenizer, np.concatenate(rows), flat, name)
  trained_length.warn(model, map(len, rows))
  find = functools.partial(
    hidden_states.extract, model.params, model.config, model.tokenizer, texts
  )
  if f.output:
    save(f.output, find(f.layers, f.attention, f.batch_size), len(texts))
    print(f'wrote {f.output}: {errors.count(len(texts), "sentence")}')
  if f.attention_plot:
    (one,) = find('last', attention=True)
    attention_plot.draw(
      f.attention_plot, one.tokens, one.attention, f.layer, f.head
    )
    print(f'wrote {f.attention_plot}: {" ".join(one.tokens)}')


def _check_flags(f, texts):
  if not f.output and not f.attention_plot:
    raise errors.UserError(
      '--output is missing; name a .npz to write, or a picture with '
      '--attention_plot.'
    )
  for name in ('layers', 'attention', 'batch_size'):
    cli.require_beside(name, 'output')
  for name in ('layer', 'head'):
    cli.require_beside(name, 'attention_plot')
  if bool(f.input) == bool(texts):
    raise errors.UserError(
      'give sentences either in a file, --input, or as arguments in quotes.'
    )
  if f.input and f.output:
    cli.require_other(f.output, f.input)


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True, resumes=False)
