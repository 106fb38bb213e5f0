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
):
  """Trains as many steps as each line of standard input says, and times them.

  The first output is `facts`; each other one has the `seconds` of all steps,
  the `cpu_seconds` of all threads, and the `loss` of the last.

  Args:
    facts: versions and device of this process.
    train: (steps) -> loss of the last; returns when all of them are done.
    after: called after each turn, untimed.
  """
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # what a library prints is no answer

  def answer(values):
    print(json.dumps(values), file=answers, flush=True)

  train(1)  # compiles
  answer(facts)
  for line in sys.stdin:
    train(1)  # warms what the others' turns have cooled
    start = time.perf_counter(), time.process_time()
    loss = train(int(line))
    end = time.perf_counter(), time.process_time()
    seconds, cpu_seconds = (b - a for a, b in zip(start, end, strict=True))
    answer({'seconds': seconds, 'cpu_seconds': cpu_seconds, 'loss': loss})
    after()
