"""Measures how many rows of training data a run makes in a second.

  python benchmarks/measure/loader.py --config=configs/base.py --data=DATA

makes batches of the config's first phase as a training run does, in one thread,
from DATA, which a run of that config or bert_jax.data.prepare has made: records are
read, laid out and masked. Rows are also counted per second of CPU time, since on a
CPU the updates want the same cores.
"""

import argparse
import statistics
import time

import step_rate
import step_rows

from bert_jax.pretraining import batches
from bert_jax.train import task

ROUNDS, SECONDS = 5, 1.0


def measure(made: batches.Batches, phase: task.Phase) -> tuple[float, float]:
  """Returns the median rates of some rounds, per second and per CPU second."""
  rates, step = [], phase.first
  for _ in range(ROUNDS + 1):
    clock, cpu, first = time.perf_counter(), time.process_time(), step
    while time.perf_counter() - clock < SECONDS:
      made.train_batch(phase, step)
      step += 1
    rows = (step - first) * phase.batch_size
    rates.append(
      (
        rows / (time.perf_counter() - clock),
        rows / (time.process_time() - cpu),
      )
    )
  by_clock, by_cpu = zip(*rates[1:], strict=True)
  return statistics.median(by_clock), statistics.median(by_cpu)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--config', required=True, help='FILE or FILE:ARGUMENTS')
  parser.add_argument('--data', required=True, help='prepared data')
  args = parser.parse_args()
  c = step_rate.get_config(args.config)
  step_rows.use_data(c, args.data)
  [phase] = task.list_phases(c)
  by_clock, by_cpu = measure(batches.Batches(c, args.data), phase)
  print(
    f'{by_clock:,.0f} rows of {phase.seq_length} tokens a second, '
    f'{by_cpu:,.0f} a second of CPU time'
  )


if __name__ == '__main__':
  main()
