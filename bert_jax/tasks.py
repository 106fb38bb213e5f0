"""The tasks by name, the values of `config.task`.

To add a task:

1. a package in `finetuning/`, or one beside it with a line for it in the layers
   of setup.cfg,
2. a `train.task.Objective` (what is learnt: initial parameters, metrics as sums
   and counts, which of them are losses; no data) and a `train.task.Task` (its
   batches, and what to make of predictions for held-out rows); for fine-tuning,
   `finetuning/supervised.py` makes both of what is the task's own,
3. a `Definition` in `TASKS` below (config, data, task, export); for fine-tuning,
   of a `task_data.Format` and of what `finetuning/outcome.py` leaves,
4. its fields in `config/fields.py`.

Batches are dicts of arrays [B, ...] with at least `input_mask` [B, ...], by
which tokens are counted. Nothing in `train/` names a task or a metric.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.finetuning import (
  completion,
  outcome,
  starting,
  supervised,
  task_data,
)
from bert_jax.finetuning.choices import choice_data, choice_finish, choose
from bert_jax.finetuning.classes import class_data, class_finish, classify
from bert_jax.finetuning.spans import answering, span_data, span_finish
from bert_jax.finetuning.tags import tag, tag_data, tag_finish
from bert_jax.pretraining import finish, init_from, pretrain, training_data
from bert_jax.train import task


@dataclasses.dataclass(frozen=True)
class Definition:
  """The functions of a task that `bert_jax.main` calls, in this order.

  Attributes:
    complete: (config, workdir) -> config, with the fields that follow from
      other things, such as the number of steps from the data. The result is
      what is printed, compared among hosts and saved; a resumed run must get
      the same, also when those things are gone.
    check: (config, workdir); raises errors.UserError for a run that cannot
      work, before data is made.
    prepare: (config, workdir); makes the data. Called by one process.
    open: (config, workdir) -> directory of the data; checks the data.
    make_task: (config, directory) -> Task.
    finish: (config, directory, workdir, parameters, predictions, step), see
      `train.fit`; exports the trained model and prints a summary. Called by one
      process.
    make_objective: (config) -> Objective, of the task; needs no data.
  """

  complete: Callable[[Any, str], Any]
  check: Callable[[Any, str], None]
  prepare: Callable[[Any, str], None]
  open: Callable[[Any, str], str]
  make_task: Callable[[Any, str], task.Task]
  finish: Callable[[Any, str, str, Any, dict, int], None]
  make_objective: Callable[[Any], task.Objective]


def _as_given(config, workdir: str):
  """Returns the config: in pre-training, the user gives every field."""
  del workdir
  return config


def _make_pretraining(config, directory: str) -> task.Task:
  made = pretrain.make_task(config, directory)
  return init_from.apply(config, directory, made)


def _define(form: task_data.Format, module, leave) -> Definition:
  """Returns a task of fine-tuning.

  Args:
    form: how its data are made and kept.
    module: what is its own, see `supervised.make_task`.
    leave: writes and prints what an `outcome.Run` ends with.
  """
  return Definition(
    complete=functools.partial(completion.complete, form.make),
    check=starting.check,
    prepare=functools.partial(task_data.prepare, form),
    open=functools.partial(task_data.open_data, form),
    make_task=functools.partial(supervised.make_task, form, module),
    finish=lambda *given: leave(outcome.open_run(form, *given)),
    make_objective=module.make_objective,
  )


TASKS = {
  'pretraining': Definition(
    complete=_as_given,
    check=init_from.check,
    prepare=training_data.prepare_data,
    open=training_data.check_data,
    make_task=_make_pretraining,
    finish=finish.finish,
    make_objective=pretrain.make_objective,
  ),
  'classification': _define(class_data.FORMAT, classify, class_finish.finish),
  'tagging': _define(tag_data.FORMAT, tag, tag_finish.finish),
  'choice': _define(choice_data.FORMAT, choose, choice_finish.finish),
  'spans': _define(span_data.FORMAT, answering, span_finish.finish),
}


def get(config: config_dict.ConfigDict) -> Definition:
  """Returns the task of a config.

  Raises:
    errors.UserError: if there is none of this name.
  """
  if config.task not in TASKS:
    raise errors.UserError(
      f'task={config.task!r} is not one of {", ".join(TASKS)}.'
    )
  return TASKS[config.task]
