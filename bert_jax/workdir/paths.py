"""The paths of a run's files in its working directory, local or gs://."""

import os
import re
from collections.abc import Callable


def split_step(name: str) -> tuple[str, int | None]:
  """Splits RUN@STEP, the name of a checkpoint of a run.

  >>> split_step('runs/base@500'), split_step('runs/base')
  (('runs/base', 500), ('runs/base', None))
  """
  found = re.fullmatch(r'(.+)@(\d+)', name)
  return (found[1], int(found[2])) if found else (name, None)


def _named(name: str) -> Callable[[str], str]:
  return lambda workdir: os.path.join(workdir, name)


config = _named('config.json')  # one JSON object
checkpoints = _named('checkpoints')  # a folder
metrics = _named('metrics.jsonl')  # the log, one JSON object per line
tensorboard = _named('tensorboard')  # the folder of its event files
status = _named('status.json')  # how the run is doing, one JSON object
trace = _named('profile')  # the folder of profiler traces
export = _named('export')  # the folder of the exported model
results = _named('results.json')  # the scores at the end
source_vocab = _named('source_')  # of the model of `init_from`, and its name
own_data = _named('data')  # the folder of data that a run prepares for itself
