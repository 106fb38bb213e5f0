"""Times a training step against PyTorch.

  python benchmarks/measure/step.py --torch=PYTHON

One update of pre-training, dropout on: the step of bert_jax.main as its config
makes it; BertForPreTraining of transformers in PyTorch with SDPA and fused AdamW
(PYTHON of --torch has transformers and torch), eager and compiled. It computes
logits at all positions, as it is written; batches, sizes, GELU (tanh), AdamW,
clipping and schedule are the same.

Each runs in its own process, which keeps its model; they take turns of a few
steps, round after round. A ratio compares two turns of one round; the table
gives the median, minimum and maximum over rounds. Only non-padding tokens count.
CPU ms are those of all threads together: they are more reliable than wall time
where other programs share the cores, but include the busy waiting of PyTorch's.

`--gathered` adds a row of PyTorch that decodes the masked positions only, as ours
does. With `--one_at_a_time` a process makes all its turns before the next one
starts, so that each has the whole memory, as on a GPU it needs.

With --body=modern it is ModernBertForMaskedLM, of the same shapes; a row is one
document, since transformers on a CPU lets packed ones see each other, and 30 % of its
tokens are predicted.

Without --size, BASE with 4 layers is compared on the CPU; gpu.py lists what is
compared on a GPU. Rows come from --data=FOLDER (made by bert_jax.data.prepare) or
else from python-docs, whose short documents leave much padding. The exit code is 1
if the faster PyTorch is not beaten by the factor in PYTORCH.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import types

import numpy as np
import step_rows
import step_turns

PREDICTIONS = {128: 20, 512: 76, 2048: 307}  # per row, at most, by length
PYTORCH = {'cpu': 1.2, 'gpu': 1.3}  # at least so many times as fast
ON_CPU = 'base', 4, 128, 8, False  # size, layers, length, rows, whether full


def get_config(size, layers, length, rows, args):
  """Returns the paper's recipe with the given shapes."""
  from bert_jax import config_check
  from bert_jax.config import apply_arguments, recipes

  # On a GPU as BASE and LARGE are shipped.
  kind = 'bfloat16,rng=rbg' if args.gpu else 'float32,rng=threefry'
  c, predictions = recipes.pretraining(size), PREDICTIONS[length]
  if args.body == 'modern':
    c, predictions = (
      apply_arguments(c, 'body=modern,dropout=0'),
      length * 3 // 10,
    )
    c.data.rows, c.objective.mask_rate = 'doc_sentences', 0.3
    c.model.max_positions = max(length, 512)
  c = apply_arguments(c, f'dtype={kind},num_layers={layers}')
  c.phases.update(seq_length=(length,), max_predictions=(predictions,))
  c.phases.update(batch_size=(rows,), steps=(1_000_000,), accumulate=(1,))
  c.compute.attention = args.attention
  config_check.check(c)
  return c


def write_settings(c, batches, device, directory):
  """Writes what the processes read (see step_peers/pipe.py); returns where."""
  from bert_jax.config import flatten, model_config
  from bert_jax.interop import config_file, modern_config

  fields, bert = flatten(c), model_config(c)
  named = config_file.from_config(bert)
  if bert.modern:
    ids = types.SimpleNamespace(pad_id=0, cls_id=2, sep_id=3)
    named = modern_config.describe(bert, ids)
  np.savez(
    os.path.join(directory, 'batches.npz'),
    labels=step_rows.labels_of(batches),
    **batches,
  )
  path = os.path.join(directory, 'settings.json')
  settings = {
    'config': fields,
    'transformers': named,
    'batches': os.path.join(directory, 'batches.npz'),
    'device': device,
  }
  with open(path, 'w') as file:
    json.dump(settings, file)
  return path


def commands(args):
  """Returns {name: [python, script, arguments]}, ours first."""
  found = {'bert_jax': [sys.executable, 'ours.py', args.compiled]}
  if args.torch and not args.gpu:
    found['PyTorch eager'] = [args.torch, 'torch_bert.py', 'eager']
  if args.torch and not args.gathered and shutil.which('c++'):
    found['PyTorch compile'] = [args.torch, 'torch_bert.py', 'compile']
  if args.torch and args.gathered:
    ways = [args.torch, 'torch_bert.py', 'compile', 'gathered']
    found['PyTorch compile, masked positions'] = ways
  return found


def run_peers(c, directory, full, args):
  """Lets all processes train; returns (the peers, the batches)."""
  device = 'gpu' if args.gpu else 'cpu'
  batches = step_rows.read(c, directory, full)
  with tempfile.TemporaryDirectory() as folder:
    settings = write_settings(c, batches, device, folder)
    all_peers = [
      step_turns.Peer(name, command, settings, device, args.threads)
      for name, command in commands(args).items()
    ]
    peers = step_turns.take_turns(all_peers, args)
  if all_peers[0] not in peers:
    sys.exit(f'error: {all_peers[0].name} cannot be compared.')
  return peers, batches


def print_table(c, mask, peers):
  """Prints a row per peer; returns {name: how many times slower than us}."""
  from bert_jax.config import model_config
  from bert_jax.hardware import chips

  _, rows, length = mask.shape
  flops = model_config(c).flops_per_sequence(
    length, c.phases.max_predictions[0]
  )
  chip = chips.find(peers[0].device)
  if chip:
    products = c.model.dtype, c.compute.matmul_precision
    chip = chip.for_products(*products)
  print(
    f'\n{c.model.num_layers} layers, hidden size {c.model.hidden_size}, '
    f'{rows} rows of {length} tokens ({1 - mask.mean():.1%} padding), '
    f'{c.data.vocab_size} words, {c.model.dtype}, dropout {c.model.dropout}'
  )
  speed = 'MFU' if chip else 'model GFLOP/s'
  print(
    f'| | ms/step | CPU ms/step | sequences/s | real tokens/s | {speed} | '
    'times our step (least, largest) | last loss | peak GiB |\n'
    '|---|---|---|---|---|---|---|---|---|'
  )
  medians = {}
  for peer in peers:
    ours = peers[0].seconds
    ratios = [b / a for a, b in zip(ours, peer.seconds, strict=True)]
    medians[peer.name] = statistics.median(ratios)
    seconds = statistics.median(peer.seconds)
    rate = rows / seconds
    used = f'{rate * flops / (chip.flops if chip else 1e9):.3g}'
    print(
      f'| {peer.name} | {seconds * 1e3:.1f} | '
      f'{statistics.median(peer.cpu_seconds) * 1e3:.0f} | {rate:.1f} | '
      f'{rate * length * mask.mean():.0f} | {used} | {medians[peer.name]:.2f} '
      f'({min(ratios):.2f}, {max(ratios):.2f}) | {peer.loss:.2f} | '
      f'{(peer.last.get("peak_bytes") or 0) / 2**30:.2f} |'
    )
  return medians


def say(good, text) -> bool:
  print(f'{"PASS" if good else "FAIL"}: {text}')
  return good


def judge(medians, goal) -> bool:
  """Says whether we are so many times as fast as the faster PyTorch."""
  found = [x for name, x in medians.items() if name.startswith('PyTorch')]
  if not found:
    return True
  return say(
    min(found) >= goal, f'{min(found):.2f}x PyTorch (at least {goal}x)'
  )


def add_shape(parser):
  """Adds what says which model is trained on which rows."""
  add = parser.add_argument
  add('--data', metavar='FOLDER', help='prepared data; default: python-docs')
  add('--gpu', action='store_true', help='a model on a GPU, in bfloat16')
  add('--size', help='of the model; see the next four flags')
  add('--body', choices=['classic', 'modern'])
  add('--layers', type=int, help='default: those of --size')
  add('--seq_length', type=int, default=128, choices=PREDICTIONS)
  add('--batch', type=int, default=16, help='rows per batch')
  add('--full', action='store_true', help='use only rows without padding')
  add('--attention', default='auto', help='compute.attention of ours')
  add('--compiled', default='', help='folder of steps compiled elsewhere')


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add_shape(parser)
  add = parser.add_argument
  add('--torch', metavar='PYTHON', help='interpreter for PyTorch')
  add('--one_at_a_time', action='store_true', help='each has all memory')
  add('--gathered', action='store_true', help="PyTorch's other row")
  add('--threads', type=int, default=2, help='CPU cores for each')
  add('--rounds', type=int, default=7)
  add('--steps', type=int, default=4, help='steps per turn')
  args = parser.parse_args()
  if not (args.torch or args.size):
    parser.error('there is nothing to compare with; give --torch=PYTHON')
  return args


def main():
  from bert_jax.config import recipes

  args = parse_arguments()
  if not args.gpu:  # the processes inherit it
    cores = sorted(os.sched_getaffinity(0))[: args.threads]
    os.sched_setaffinity(0, cores)
    print(f'{len(cores)} CPU cores for each process')
  with tempfile.TemporaryDirectory() as folder:
    data = args.data or os.path.join(folder, 'data')
    if not args.data:
      of_one = args.seq_length if args.body == 'modern' else 0
      step_rows.prepare_docs(data, args.threads, of_one)
    *shape, full = ON_CPU
    if args.size:
      layers = args.layers or recipes.pretraining(args.size).model.num_layers
      shape, full = (args.size, layers, args.seq_length, args.batch), args.full
    c = get_config(*shape, args)
    step_rows.use_data(c, data)
    peers, batches = run_peers(c, data, full, args)
    good = len(peers) == len(commands(args))
    medians = print_table(c, batches['input_mask'], peers)
    if args.gpu or not args.size:
      good &= judge(medians, PYTORCH['gpu' if args.gpu else 'cpu'])
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
