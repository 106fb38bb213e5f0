"""The tasks by name, the values of `config.task`.

CONTRIBUTING.md says how to add a task of fine-tuning. Any other needs a package
beside `finetuning/`, with a line in the layers of setup.cfg; an `Objective` and a
`Task` of `trainer/task.py`; a `Definition` below; and its fields in
`config/fields.py`. Batches are dicts of arrays [B, ...] with at least `input_mask`,
by which tokens are counted. Nothing in `trainer/` names a task or a metric.
"""

import dataclasses
import functools
from collections.abc import Callable

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import (
  choices,
  classes,
  outcome,
  spans,
  starting,
  supervised,
  tags,
  training,
)
from bert_jax.inference import fine_tuned
from bert_jax.pretraining import (
  continued,
  finish,
  init_from,
  pretrain,
  training_data,
)


@dataclasses.dataclass(frozen=True)
class Definition:
  """The functions of a task that `bert_jax.main` calls, in this order.

  Attributes:
    take_model: (config, workdir) -> config, with the fields that follow from the
      model that it starts from; a resumed run must get the same values if that
      model is gone.
    check_input: (config): errors.UserError if data cannot be made from the files;
      writes nothing.
    prepare: (config, workdir), in one process.
    open: (config, workdir) -> data, or their directory.
    complete: (config, data, workdir) -> config, with what follows from the data;
      it is printed, compared among hosts and saved.
    make_task: (config, data) -> `trainer.task.Task`.
    finish: (config, data, workdir, parameters, predictions, step), in one process.
    make_objective: (config) -> `trainer.task.Objective`, without data.
  """

  take_model: Callable
  check_input: Callable
  prepare: Callable
  open: Callable
  complete: Callable
  make_task: Callable
  finish: Callable
  make_objective: Callable


def _take_model(config, workdir: str):
  return continued.take_run(init_from.take_model(config, workdir), workdir)


def _prepare_pretraining(config, workdir: str):
  init_from.write_vocabulary(config, workdir)
  training_data.prepare_data(config, workdir)


def define(this: supervised.Supervised) -> Definition:
  """Returns a task of fine-tuning."""
  return Definition(
    take_model=starting.take_model,
    check_input=functools.partial(training.check_input, this),
    prepare=lambda *_: None,  # files are read at each start
    open=functools.partial(training.open_data, this),
    complete=starting.complete,
    make_task=functools.partial(training.make_task, this),
    finish=functools.partial(outcome.finish, this),
    make_objective=functools.partial(training.make_objective, this),
  )


# The tasks of fine-tuning.
SUPERVISED: dict[str, supervised.Supervised] = {
  this.name: this
  for this in (
    *(classes.CLASSES, classes.SETS),
    *(tags.TASK, choices.TASK, spans.TASK),
  )
}

TASKS = {
  'pretraining': Definition(
    take_model=_take_model,
    check_input=lambda *_: None,  # reading all input may take hours
    prepare=_prepare_pretraining,
    open=training_data.check_data,
    complete=lambda config, data, workdir: config,
    make_task=pretrain.make_task,
    finish=finish.finish,
    make_objective=pretrain.make_objective,
  ),
  **{name: define(this) for name, this in SUPERVISED.items()},
}


def get(config: config_dict.ConfigDict) -> Definition:
  """Returns the task of a config."""
  if config.task not in TASKS:
    raise errors.UserError(
      f'task={config.task!r} is not one of {", ".join(TASKS)}.'
    )
  return TASKS[fine_tuned.name_task(config)]
