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

import math
import warnings
import zipfile
from collections.abc import Iterable

import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.finetuning.readers import table_files
from bert_jax.inference import hidden_states, source, trained_length
from bert_jax.runtime import cards, cli, files, progress
from bert_jax.tokenization import unknown

# Inches: row of a token, minimum side of a map, gap between maps.
_CELL, _LEAST_SIDE, _GAP = 0.2, 1.6, 0.4
_COLUMNS = 4  # heads side by side, at most
# The first comes with matplotlib; the others may have what it lacks.
_FONTS = 'DejaVu Sans,Noto Sans CJK JP,Noto Sans CJK KR,Noto Sans'.split(',')


def write(path: str, features: Iterable[hidden_states.Features], total: int):
  """Writes features, one by one, to a file for numpy.load.

  Like numpy.savez, which would need all arrays at once.
  """
  with (
    zipfile.ZipFile(path, 'w') as archive,
    progress.Progress(total, 'sentences', 'features') as bar,
  ):
    for i, one in enumerate(features):
      for name, array in one._asdict().items():
        if array is not None:
          with archive.open(f'{name}_{i}.npy', 'w', force_zip64=True) as entry:
            np.lib.format.write_array(entry, np.array(array))
      bar.update(1)


def split_lines(lines: Iterable[str], path: str) -> list[tuple[str, ...]]:
  """Returns the sentence, or pair, of each line."""
  rows = [tuple(line.removesuffix('\r').split('\t')) for line in lines]
  if not rows:
    raise errors.UserError(f'{path} has no sentence; give a file with some.')
  for number, row in enumerate(rows, 1):
    if len(row) > 2:
      problem = f'has {len(row)} texts with tabs between; give one or a pair.'
      raise errors.at_line(path, number, problem)
  return rows


def draw_attention(
  path: str, tokens: tuple[str, ...], maps: dict[str, np.ndarray]
):
  """Draws attention maps as a PNG.

  Args:
    tokens: S word pieces.
    maps: {title: probabilities [S (from), S (to)]}.
  """
  matplotlib = cards.import_matplotlib()
  there = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
  fonts = [name for name in _FONTS if name in there]  # searched for each letter
  with (
    matplotlib.rc_context({'font.family': fonts, 'font.size': 8}),
    warnings.catch_warnings(record=True, action='always') as warned,
  ):
    figure = _make_figure(matplotlib, tokens, maps)
    files.write_file(
      path, lambda new: figure.savefig(new, format='png', dpi=110)
    )
  if any('missing from font' in str(w.message) for w in warned):
    print('no font here has all letters of it; install one, such as Noto Sans')


def _make_figure(matplotlib, tokens, maps):
  columns = min(_COLUMNS, math.ceil(math.sqrt(len(maps))))
  rows = math.ceil(len(maps) / columns)
  side = max(_CELL * len(tokens), _LEAST_SIDE) + _GAP
  figure = matplotlib.figure.Figure(
    (columns * side + 2, rows * side + 1), layout='constrained'
  )
  grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
  most = max(x.max() for x in maps.values())
  for axis, (title, probabilities) in zip(
    grid.flat, maps.items(), strict=False
  ):
    image = axis.imshow(probabilities, 'Blues', vmin=0, vmax=most)
    axis.set_title(title)
    axis.set_xticks(range(len(tokens)), tokens, rotation=90)
    axis.set_yticks(range(len(tokens)), tokens)
  for axis in grid.flat[len(maps) :]:
    axis.remove()
  figure.supxlabel('to', fontsize=10)
  figure.supylabel('from', fontsize=10)
  figure.colorbar(image, ax=[*grid.flat[: len(maps)]], label='probability')
  return figure


def _define_flags():
  flags.DEFINE_string('model', None, 'A run, its export or another model.')
  flags.DEFINE_string('input', None, 'File with a sentence or pair per line.')
  flags.DEFINE_string('output', None, 'The .npz to write.')
  layers = [*hidden_states.LAYERS]
  flags.DEFINE_enum('layers', 'last', layers, 'Layers to write, see above.')
  flags.DEFINE_boolean('attention', False, 'Write attention maps too.')
  flags.DEFINE_string('attention_plot', None, 'The .png of one sentence.')
  flags.DEFINE_integer('layer', -1, 'Layer to draw, from 0; -1 is the last.')
  flags.DEFINE_integer('head', None, 'Head to draw, from 0; by default all.')
  flags.mark_flag_as_required('model')


def main(argv: list[str]):
  f, name, lines = flags.FLAGS, 'the sentences', argv[1:]
  _check_flags(f, lines)
  if f.input:
    name = f.input
    lines = table_files.read_text(name).removesuffix('\n').split('\n')
  texts = split_lines(lines if lines != [''] else [], name)
  model = source.read(f.model)
  rows = [model.tokenizer.encode(*text)['input_ids'] for text in texts]
  flat = [text for row in texts for text in row]
  unknown.tell(model.tokenizer, np.concatenate(rows), flat, name)
  trained_length.warn(model, map(len, rows))
  if f.output:
    found = hidden_states.extract(*model[:3], texts, f.layers, f.attention)
    files.write_file(f.output, lambda new: write(new, found, len(texts)))
    print(f'wrote {f.output}: {errors.count(len(texts), "sentence")}')
  if f.attention_plot:
    [one] = hidden_states.extract(*model[:3], texts, 'last', attention=True)
    layer = range(model.config.num_layers)[f.layer]
    heads = range(model.config.num_heads)
    maps = {
      f'layer {layer}, head {head}': one.attention[layer, head]
      for head in (heads if f.head is None else [heads[f.head]])
    }
    draw_attention(f.attention_plot, one.tokens, maps)
    print(f'wrote {f.attention_plot}: {" ".join(one.tokens)}')


def _check_flags(f, sentences):
  beside = {
    'output': ('layers', 'attention'),
    'attention_plot': ('layer', 'head'),
  }
  for needed, names in beside.items():
    if idle := [x for x in names if f[x].present and not f[needed].value]:
      raise errors.UserError(f'--{idle[0]} needs --{needed}; give that, too.')
  if not f.output and not f.attention_plot:
    raise errors.UserError(
      'give --output=FILE.npz or --attention_plot=FILE.png.'
    )
  if bool(f.input) == bool(sentences):
    raise errors.UserError(
      'give sentences either in a file, --input, or as arguments in quotes.'
    )
  if f.input and f.output:
    cli.require_other(f.output, f.input)
  if f.attention_plot:
    cards.import_matplotlib()  # or says what to install
    if len(sentences) != 1:
      raise errors.UserError('--attention_plot draws one sentence, in quotes.')


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True, resumes=False)
