"""The paths of a run's files in its working directory, local or gs://."""

import os
import re

from ml_collections import config_dict


def split_step(name: str) -> tuple[str, int | None]:
  """Splits RUN@STEP, the name of a checkpoint of a run.

  >>> split_step('runs/base@500'), split_step('runs/base')
  (('runs/base', 500), ('runs/base', None))
  """
  found = re.fullmatch(r'(.+)@(\d+)', name)
  return (found[1], int(found[2])) if found else (name, None)


def config(workdir: str) -> str:
  """Returns the path of the config, one JSON object."""
  return os.path.join(workdir, 'config.json')


def checkpoints(workdir: str) -> str:
  """Returns the folder of the checkpoints."""
  return os.path.join(workdir, 'checkpoints')


def metrics(workdir: str) -> str:
  """Returns the path of the log, one JSON object per line."""
  return os.path.join(workdir, 'metrics.jsonl')


def tensorboard(workdir: str) -> str:
  """Returns the folder of TensorBoard's event files."""
  return os.path.join(workdir, 'tensorboard')


def status(workdir: str) -> str:
  """Returns the path of how the run is doing, one JSON object."""
  return os.path.join(workdir, 'status.json')


def trace(workdir: str) -> str:
  """Returns the folder of profiler traces."""
  return os.path.join(workdir, 'profile')


def export(workdir: str) -> str:
  """Returns the folder of the exported model."""
  return os.path.join(workdir, 'export')


def results(workdir: str) -> str:
  """Returns the path of a fine-tuned model's scores, one JSON object."""
  return os.path.join(workdir, 'results.json')


def prepared_data(config: config_dict.ConfigDict, workdir: str) -> str:
  """Returns the folder of the prepared data that a config trains on."""
  return config.data.dir or os.path.join(workdir, 'data')
