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

  The first output is `facts`; each other one has the `seconds` of all steps,
  the `cpu_seconds` of all threads, the `loss` of the last, and `more`.

  Args:
    facts: versions and device of this process.
    train: (steps) -> loss of the last; returns when all of them are done.
    after: called when the model is compiled and after each turn, untimed.
    more: what else to answer after a turn.
  """
  answer = open_answers()
  train(1)  # compiles
  after()
  answer(facts)
  for line in sys.stdin:
    train(1)  # warms what the others' turns have cooled
    wall, cpu = time.perf_counter(), time.process_time()
    loss = train(int(line))
    spent = {
      'seconds': time.perf_counter() - wall,
      'cpu_seconds': time.process_time() - cpu,
    }
    answer({**spent, 'loss': loss, **more()})
    after()


def open_answers() -> Callable[[dict], None]:
  """Returns a function that answers; other output goes to standard error."""
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # what a library prints is no answer
  return lambda values: print(json.dumps(values), file=answers, flush=True)
