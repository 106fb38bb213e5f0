"""Makes the state that training starts from: restored, the task's, or new."""

import jax
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.model import parameters
from bert_jax.parallel import distributed
from bert_jax.train import programs
from bert_jax.train import step as step_lib
from bert_jax.train import task as task_lib
from bert_jax.workdir import checkpoint, paths


def make(
  config: config_dict.ConfigDict,
  task: task_lib.Task,
  start: dict[str, programs.Program],
  checkpoints: checkpoint.Checkpoints,
  workdir: str,
  known: int | None,
):
  """Restores the newest undamaged checkpoint, or initialises.

  Args:
    start: {name: program} of `programs.list_start`.
    checkpoints: the run's `checkpoint.Checkpoints`.
    known: step of a checkpoint that the run is known to have had; processes
      that do not know give None.

  Returns:
    (state, origin): origin is {} or {'init_from': facts}. It is saved in every
    checkpoint, since the model that it describes may be deleted.

  Raises:
    errors.UserError: if all checkpoints are damaged or missing, or the newest
      was trained on other data.
  """
  # The fingerprint's argument is the whole state.
  (template,) = start[programs.FINGERPRINT].arguments
  _describe(template.params, config.data.vocab_size)
  restored = checkpoints.restore(template, config.checkpoint.start_over)
  if restored is None and not config.checkpoint.start_over:
    _check_known(workdir, distributed.find_largest(known or 0))
  if restored is not None:
    return _resumed(task, *restored)
  state: step_lib.TrainState = start[programs.INITIALISE].jitted(
    jax.random.key(config.seed)
  )
  if task.start is None:
    return state, {}
  params, facts = task.start(programs.gather_on_host(state.params, start))
  params = start[programs.PLACE].jitted(params)
  return state.replace(params=params), {'init_from': facts}


def _check_known(workdir, known):
  if known:
    raise errors.UserError(
      f'{paths.checkpoints(workdir)} lists no checkpoint, though '
      f'the run had one of step {known:,} ({paths.status(workdir)}). Restore '
      'them from a copy, or start from step 0 with '
      '--config.checkpoint.start_over=True.'
    )


def _describe(params, vocab_size):
  # As in the export: padding rows of the vocabulary are not of the model.
  own = jax.eval_shape(
    lambda x: parameters.drop_padding_rows(x, vocab_size), params
  )
  size = sum(x.size for x in jax.tree.leaves(own))
  devices = f'{jax.device_count()} x {jax.devices()[0].device_kind}'
  print(f'model: {size:,} parameters on {devices}', flush=True)


def _resumed(task, state, facts):
  changed = errors.find_changes(facts['task'], task.facts)
  if changed:
    raise errors.UserError(
      f'the checkpoint was trained on other data ({"; ".join(changed[:3])}); '
      'use another --workdir.'
    )
  print(
    f'resumed at step {int(state.step):,}, fingerprint={facts["fingerprint"]}',
    flush=True,
  )
  return state, {k: facts[k] for k in facts if k == 'init_from'}
