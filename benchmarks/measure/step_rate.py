"""Compares the FLOPs per second of a training step with those of a bare product.

  python benchmarks/measure/step_rate.py --config=configs/tiny.py --data=DATA

alternates, on a CPU, updates of the config's first phase with products of float32
matrices of 2,048 rows and columns, each in its own process. DATA was prepared by a
run of that config, or by bert_jax.data.prepare. FLOPs are those that the log
counts: of the matrix products of an update. The exit code is 1 if the median share
is below GOAL.
"""

import argparse
import os
import runpy
import statistics
import sys
import tempfile

import step
import step_goals
import step_rows
import step_turns

GOAL = 0.6  # of the FLOPs per second of a product
SIZE = 2048  # rows and columns of its matrices


def get_config(path: str):
  """Returns the config of a file, with its first phase alone."""
  name, _, arguments = path.partition(':')
  c = runpy.run_path(name)['get_config'](arguments)
  c.phases.update({x: values[:1] for x, values in c.phases.items()})
  return c


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--config', required=True, help='FILE or FILE:ARGUMENTS')
  parser.add_argument('--data', required=True, help='prepared data')
  parser.add_argument('--threads', default=2, type=int, help='CPU cores')
  parser.add_argument('--rounds', default=9, type=int)
  args = parser.parse_args()
  cores = sorted(os.sched_getaffinity(0))[: args.threads]
  os.sched_setaffinity(0, cores)

  from bert_jax.pretraining import pretrain
  from bert_jax.train import task

  c = get_config(args.config)
  step_rows.use_data(c, args.data)
  batches = step_rows.read(c, args.data, full=False)
  [phase] = task.list_phases(c)
  flops = pretrain.make_objective(c).flops(phase), 2 * SIZE**3
  with tempfile.TemporaryDirectory() as folder:
    settings = step.write_settings(c, batches, 'cpu', folder)
    update, product = (
      step_turns.Peer(
        name, [sys.executable, *command], settings, 'cpu', len(cores)
      )
      for name, command in (
        ('update', ['ours.py']),
        ('product', ['product.py', str(SIZE)]),
      )
    )
    for peer in (update, product):
      peer.start()
      peer.wait()
    for _ in range(args.rounds):
      update.turn(20)
      product.turn(10)
    for peer in (update, product):
      peer.close()
  rates = [
    [count / seconds / 1e9 for seconds in peer.seconds]
    for peer, count in zip((update, product), flops, strict=True)
  ]
  shares = [a / b for a, b in zip(*rates, strict=True)]
  share = statistics.median(shares)
  print(
    f'{len(cores)} cores: {statistics.median(rates[0]):.0f} GFLOP/s of '
    f'{statistics.median(rates[1]):.0f}, a share of {share:.2f} '
    f'({min(shares):.2f} to {max(shares):.2f}), '
    f'{1e3 * statistics.median(update.seconds):.1f} ms an update'
  )
  good = step_goals.say(share >= GOAL, f'{share:.2f} (at least {GOAL})')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
