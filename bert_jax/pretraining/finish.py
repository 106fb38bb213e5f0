"""The end of a pre-training run: export, three examples, where things lie."""

import os

import jax
import numpy as np

from bert_jax import config as config_lib
from bert_jax.data import dataset, manifest
from bert_jax.inference import fill
from bert_jax.interop import hf_export
from bert_jax.model import parameters
from bert_jax.pretraining import model_card
from bert_jax.workdir import log, paths

_WORDS = 24  # of an example sentence, at most


def finish(config, directory: str, workdir: str, params):
  """Exports the model and prints what it does and what to do next.

  Args:
    config: the experiment.
    directory: of the prepared data.
    workdir: of the run; the model goes to `export/` in it.
    params: trained parameters, all rows of them.
  """
  bert = config_lib.model_config(config)
  params = parameters.drop_padding_rows(params, bert.vocab_size)
  words = manifest.load_tokenizer(directory)
  print('\nheld-out text, one word hidden:')
  for sentence, truth in _examples(config, directory, words):
    guessed = fill.fill(params, bert, config.objective.nsp, words, sentence)
    print(f'\n  {sentence}')
    guesses = ', '.join(f'{word} {p:.0%}' for word, p in guessed[0])
    print(f'    the model: {guesses}; the text: {truth}')
  exported = None
  if bert.norm == 'post':
    exported = paths.export(workdir)
    described = model_card.make_card(
      config,
      manifest.read(directory),
      log.read(paths.metrics(workdir)),
      sum(x.size for x in jax.tree.leaves(params)),
    )
    hf_export.export(
      exported, params, bert, config.objective.nsp, words, described
    )
  _print_summary(directory, workdir, exported)


def _examples(config, directory, words) -> list[tuple[str, str]]:
  """Returns three (sentence with [MASK], hidden word) of held-out text."""
  split = dataset.open_split(directory, 'heldout', config.phases.seq_length[0])
  size = len(split.reader)
  rows = split.reader.rows(
    np.arange(3) * size // 3,
    split.length,
    words.cls_id,
    words.sep_id,
    config.data.pack,
  )
  found = []
  for ids, segments in zip(rows['input_ids'], rows['segment_ids'], strict=True):
    # The first text ends where segment 1 begins, packed or not.
    first = ids[: np.argmax(segments)][1:-1][:_WORDS]
    tokens = words.tokens(first.tolist())
    starts = [
      i
      for i, token in enumerate(tokens[:-1])
      if token.isalpha()
      and len(token) > 2
      and not tokens[i + 1].startswith('##')
    ]
    at = starts[len(starts) // 2] if starts else 0
    shown = first.tolist()
    shown[at] = words.mask_id
    found.append((words.decode(shown), tokens[at]))
  return found


def _print_summary(directory: str, workdir: str, exported: str | None):
  rows = log.read(paths.metrics(workdir))
  last = [r for r in rows if r['kind'] == 'eval'][-1]
  facts = [r for r in rows if r['kind'] == 'run'][-1]
  nsp = (
    f', NSP accuracy {last["nsp_accuracy"]:.1%}'
    if 'nsp_accuracy' in last
    else ''
  )
  gain = facts['unigram_entropy'] - last['mlm_loss']
  print(
    f'\nheld-out after {last["step"]:,} steps: MLM loss '
    f'{last["mlm_loss"]:.3f} ({abs(gain):.2f} nats '
    f'{"below" if gain >= 0 else "above"} the unigram entropy '
    f'{facts["unigram_entropy"]:.3f}), perplexity '
    f'{last["mlm_perplexity"]:.1f}, MLM accuracy {last["mlm_accuracy"]:.1%}'
    f'{nsp}\n'
  )
  print(f'  {directory}: vocabulary, examples, manifest')
  where = [
    ('checkpoints', 'parameters and optimizer'),
    ('metrics.jsonl', 'every number of the log'),
    ('tensorboard', 'the same as curves'),
  ]
  if exported:
    where.append(('export', 'the model, for Hugging Face transformers'))
    where.append(('export/README.md', 'its card; fill in the licence'))
  for name, meaning in where:
    print(f'  {os.path.join(workdir, name)}: {meaning}')
  if not exported:
    print('  no export: BERT of Hugging Face has no model with norm=pre')
  print('\nnext:')
  if exported:
    print(
      f'  python -m bert_jax.fill_mask --model={exported} '
      '"this function returns a [MASK] of strings ."'
    )
  print(f'  pip install tensorboard && tensorboard --logdir={workdir}')
  print(
    "  train on your own text: --config.data.input='FILES' and another "
    '--workdir'
  )
