"""How a training process talks with ../step.py: lines of JSON."""

import json
import os
import sys
import time
from collections.abc import Callable


def settings() -> dict:
  """Reads the settings from the file that the command names.

  They hold `config` (fields of `bert_jax.config`), `transformers` (fields of
  its BertConfig), `batches` (path of an .npz file, arrays [n, B, ...]) and
  `device`, cpu or gpu.
  """
  with open(sys.argv[1]) as file:
    return json.load(file)


def serve(
  facts: dict,
  train: Callable[[int], float],
  after: Callable[[], None] = lambda: None,
  more: Callable[[], dict] = dict,
):
  """Trains as many steps as each line of standard input says, and times them.

  The first output is `facts`, and the seconds of the `first` step; each other
  one has the `seconds` of all steps, the `cpu_seconds` of all threads, the
  `loss` of the last, and `more`.

  Args:
    facts: versions and device of this process.
    train: (steps) -> loss of the last; returns when all of them are done.
    after: called after each turn, untimed.
    more: what else to answer after a turn.
  """
  answer, start = open_answers(), read_clocks()
  train(1)  # compiles
  answer(facts | {'first': measure_since(start)['seconds']})
  for line in sys.stdin:
    train(1)  # warms what the others' turns have cooled
    start = read_clocks()
    loss = train(int(line))
    answer({**measure_since(start), 'loss': loss, **more()})
    after()


def open_answers() -> Callable[[dict], None]:
  """Returns a function that answers; other output goes to standard error."""
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # what a library prints is no answer
  return lambda values: print(json.dumps(values), file=answers, flush=True)


def read_clocks() -> tuple[float, float]:
  """Returns wall time, and CPU time of all threads, in seconds."""
  return time.perf_counter(), time.process_time()


def measure_since(start: tuple[float, float]) -> dict[str, float]:
  """Returns the `seconds` and `cpu_seconds` since `read_clocks`."""
  seconds, cpu_seconds = (
    b - a for a, b in zip(start, read_clocks(), strict=True)
  )
  return {'seconds': seconds, 'cpu_seconds': cpu_seconds}
