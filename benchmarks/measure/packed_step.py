"""Times our training step on padded and on packed rows of the same text.

  python benchmarks/measure/packed_step.py --gpu
  python benchmarks/measure/packed_step.py --size=mini --batch=8

One process each, one after the other on a GPU, in turns on a CPU. Only tokens
that are no padding count. Rows come from --data=FOLDER and --packed=FOLDER
(made by bert_jax.data.prepare without and with --pack) or else from
python-docs, whose short documents leave much padding. The goal is for a GPU;
the exit code is 1 if it is missed there.
"""

import argparse
import os
import statistics
import sys
import tempfile

import step
import step_rows

GOAL = 1.8


def measure(c, directory, args):
  """Returns (a started peer, its mean number of tokens in a batch)."""
  step_rows.use_data(c, directory)
  batches = step_rows.read(c, directory, full=False)
  device = 'gpu' if args.gpu else 'cpu'
  with tempfile.TemporaryDirectory() as folder:
    settings = step.write_settings(c, batches, device, folder)
    command = [sys.executable, 'ours.py']
    name = 'packed' if c.data.pack > 1 else 'padded'
    peer = step.Peer(name, command, settings, device, args.threads)
  return peer, batches['input_mask'].sum() / len(batches['input_mask'])


def compare(found, args):
  """Prints a row for each way; returns how many times faster packed ones are."""
  print(
    '| rows | pairs per row, at most | tokens in a batch | ms/step | '
    'tokens/s |\n|---|---|---|---|---|'
  )
  rates = []
  for (peer, tokens), pack in zip(found, (1, args.pack), strict=True):
    seconds = statistics.median(peer.seconds)
    rates.append(tokens / seconds)
    print(
      f'| {peer.name} | {pack} | {tokens:.0f} of '
      f'{args.batch * args.seq_length} | {seconds * 1e3:.1f} | '
      f'{rates[-1]:.0f} |'
    )
  return rates[1] / rates[0]


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--data', metavar='FOLDER', help='prepared data; default: python-docs')
  add('--packed', metavar='FOLDER', help='the same, prepared with --pack')
  add('--pack', type=int, default=3, help='that of --packed')
  add('--gpu', action='store_true', help='on a GPU, in bfloat16')
  add('--size', default='base')
  add('--layers', type=int, help='default: those of --size')
  add('--seq_length', type=int, default=512, choices=step.PREDICTIONS)
  add('--batch', type=int, default=32, help='rows per batch')
  add('--dtype', choices=('float32', 'bfloat16'))
  add('--rng', help='of our dropout; default: threefry, on a GPU rbg')
  add('--attention', default='auto', help='compute.attention')
  add('--threads', type=int, default=2, help='CPU cores for each')
  add('--rounds', type=int, default=7)
  add('--steps', type=int, help='steps per turn; default: 2, on a GPU 20')
  return parser.parse_args()


def main():
  from bert_jax import config as config_lib

  args, found = parse_arguments(), []
  steps = args.steps or (20 if args.gpu else 2)
  layers = args.layers or config_lib.pretraining(args.size).model.num_layers
  with tempfile.TemporaryDirectory() as folder:
    for pack, data in ((1, args.data), (args.pack, args.packed)):
      directory = data or os.path.join(folder, str(pack))
      if not data:
        step_rows.prepare_docs(directory, args.threads, pack)
      shape = args.size, layers, args.seq_length, args.batch
      c = step.get_config(*shape, args)
      c.data.pack = pack
      found.append(measure(c, directory, args))
      if args.gpu:
        for _ in range(args.rounds):
          found[-1][0].turn(steps)
        found[-1][0].close()
  if not args.gpu:
    for _ in range(args.rounds):
      for peer, _ in found:
        peer.turn(steps)
    for peer, _ in found:
      peer.close()
  ratio = compare(found, args)
  if not args.gpu:
    print(f'{ratio:.2f} times the tokens/s of padded rows')
    return 0
  print(
    f'{"PASS" if ratio >= GOAL else "FAIL"}: {ratio:.2f} times the tokens/s of '
    f'padded rows (at least {GOAL})'
  )
  return 0 if ratio >= GOAL else 1


if __name__ == '__main__':
  sys.exit(main())
