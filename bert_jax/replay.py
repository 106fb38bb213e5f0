"""Shows the rows of a past step of pre-training, each with its loss and text.

  python -m bert_jax.replay --workdir=DIR --step=N

Step N is numbered as in the log. For each row, the largest loss first, a line
has its number in the batch, its part of the batch's loss, the mean losses of
its masked tokens and sentence pairs, and its text, with stars around the masked
tokens. They are computed without dropout, with the weights of the newest
checkpoint before the step.

It runs on one device, whatever the run used: a CPU, unless JAX_PLATFORMS names
another. The run may be training; nothing is written to its directory.
"""

import os

import jax
import numpy as np
from absl import flags

from bert_jax import errors
from bert_jax.data import dataset, manifest_file
from bert_jax.inference import trained_run
from bert_jax.model import precision
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.runtime import cli, progress, storage
from bert_jax.trainer import tuning
from bert_jax.trainer.task import list_phases
from bert_jax.workdir import checkpoint_reader, paths


def describe(workdir: str, number: int) -> list[str]:
  """Returns lines about step `number`, from 1, of a run, which is not changed."""
  config = trained_run.read_config(paths.config(workdir))
  if config.task != 'pretraining':
    raise errors.UserError(
      f'{workdir} is a run of task={config.task}; only steps of pre-training '
      'can be replayed.'
    )
  if not 1 <= number <= sum(config.phases.steps):
    raise errors.UserError(
      f'--step={number} is not a step of the run, which has steps 1 to '
      f'{sum(config.phases.steps)}, numbered as in its log.'
    )
  phase = [x for x in list_phases(config) if x.first < number][-1]
  config.mesh.model = 1  # how the run computed does not matter
  for name in ('attention', 'heads', 'xla_options'):
    config.compute[name] = 'auto'
  checkpoints, path = paths.checkpoints(workdir), paths.config(workdir)
  params, facts = checkpoint_reader.read(checkpoints, latest=number - 1)
  trained_run.check_params(params, pretrain.make_module(config), path)
  directory = config.data.dir or paths.own_data(workdir)
  directory = dataset.fetch(directory, config.phases.seq_length)
  task = pretrain.make_task(config, directory)
  mesh = device_mesh.make_mesh(1, jax.devices()[:1])
  objective = tuning.tune(task.objective, mesh, phase)
  was = {name: facts['task'].get(name) for name in task.facts}
  if changes := errors.find_changes(was, task.facts):
    raise errors.UserError(
      f'{directory} holds other data than the run was trained on '
      f'({"; ".join(changes[:3])}); put the old data back.'
    )
  batch = task.train_batch(phase, number - 1, np.arange(phase.batch_size))
  params = precision.cast(params, config.model.dtype)
  products = config.compute.matmul_precision, config.model.dtype
  with precision.set_products(*products):
    losses, means = measure(objective, params, batch)
  words = manifest_file.load_tokenizer(directory)
  texts = mark_rows(batch, words, config.objective.kind == 'mlm')
  # Rows that are not finite come first.
  order = np.lexsort((-np.nan_to_num(losses), np.isfinite(losses)))
  return [
    f'step {number:,}, with the weights of step {facts["step"]:,}: loss '
    f'{losses.sum():.3f}',
    'row, its part of the loss, mean losses of its tokens and pairs, text:',
    *(
      f'{i:>5}{losses[i]:>9.4f}{"".join(f"{x[i]:>8.3f}" for x in means)}'
      f'  {texts[i]}'
      for i in order.tolist()
    ),
  ]


def measure(objective, params, batch) -> tuple[np.ndarray, list]:
  """Returns each row's part of the batch's loss, and its mean losses, [B]."""
  compute = jax.jit(lambda params, row: objective.compute(params, row, None)[0])
  params, sums, counts = jax.device_put(params, jax.devices()[0]), [], []
  with progress.Progress(len(batch['input_mask']), 'rows', 'replaying') as bar:
    for i in range(len(batch['input_mask'])):
      row = {name: x[i : i + 1] for name, x in batch.items()}
      sums.append(jax.device_get(compute(params, row)))
      counts.append(jax.device_get(objective.counts(row)))
      bar.update(1)
  sums, counts = (
    {name: np.array([float(x[name]) for x in rows]) for name in rows[0]}
    for rows in (sums, counts)
  )
  names = objective.losses
  losses = sum(sums[x] / max(counts[x].sum(), 1) for x in names)
  return losses, [sums[x] / np.maximum(counts[x], 1) for x in names]


def mark_rows(batch, words, masked: bool) -> list[str]:
  """Returns the text of each row, with stars around the masked tokens."""
  texts = []
  for i, ids in enumerate(batch['input_ids']):
    tokens = words.tokens(ids[batch['input_mask'][i] > 0].tolist())
    for j in np.flatnonzero(batch['masked_lm_weights'][i]) if masked else ():
      [token] = words.tokens([int(batch['masked_lm_ids'][i, j])])
      tokens[batch['masked_lm_positions'][i, j]] = f'*{token}*'
    texts.append(' '.join(tokens).replace(' ##', ''))
  return texts


def main():
  # Accelerators may be busy with the run.
  if 'JAX_PLATFORMS' not in os.environ:
    jax.config.update('jax_platforms', 'cpu')
  values = flags.FLAGS
  lines = describe(storage.resolve(values.workdir), values.step)
  print('\n'.join(lines))


def _define_flags():
  flags.DEFINE_string('workdir', None, 'Directory of the run.')
  flags.DEFINE_integer('step', None, 'Step to replay, as in the log, from 1.')
  flags.mark_flags_as_required(['workdir', 'step'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, resumes=False)
