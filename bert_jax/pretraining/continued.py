"""Goes on from a checkpoint of another run, with its optimizer: `continue_from`.

The phases of that run, up to the checkpoint, come before the run's own. So updates
are counted on, the schedule lasts for all of them, and rows of the same length go
on where the other run stopped.
"""

import dataclasses
import re

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import declare_fields
from bert_jax.data import manifest_file
from bert_jax.parallel import distributed
from bert_jax.runtime import files
from bert_jax.tokenization.fast_tokenizer import load
from bert_jax.trainer import task
from bert_jax.workdir import checkpoint_reader, claim, paths

# What may differ: when, at which rate and on which rows a run trains.
_NEW = re.compile(
  r'(init_from|continue_from|(phases|data|eval)\..*|objective\.(initial_)?mask_.*|'
  r'optimizer\.(learning_rate|warmup_steps|schedule|decay_.*|weight_decay|clip_.*))$'
)
_OF_PHASES = 'seq_length', 'batch_size', 'accumulate', 'max_predictions'
_OF_WORDS = 'vocab_size', 'lowercase', 'strip_accents', 'vocab'
# What a run that has begun keeps.
_FILLED = 'phases.', 'continue_from', *(f'data.{name}' for name in _OF_WORDS)


def take_run(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns the config with the phases and the vocabulary of `continue_from`.

  A run that has begun keeps them, even if that run is gone.

  Raises:
    errors.UserError: if that run cannot be continued so.
  """
  if not config.continue_from:
    return config
  c = config.copy_and_resolve_references()
  if claim.is_final(workdir):
    begun = files.read_json(paths.config(workdir))
    names = [f'phases.{name}' for name in c.phases]
    own = [tuple(begun.get(x, ())[-len(c.phases.steps) :]) for x in names]
    if own == [c.phases[x.removeprefix('phases.')] for x in names]:
      given = ('data.vocab',) * bool(c.data.vocab)
      claim.restore(
        c, workdir, lambda x: x.startswith(_FILLED) and x not in given
      )
    return c
  directory, step = find_checkpoint(c.continue_from)
  theirs = declare_fields()
  begun = claim.restore(theirs, directory, lambda name: True)
  changed = claim.find_differences(begun, c)['another']
  if wrong := {name: x for name, x in changed.items() if not _NEW.match(name)}:
    raise errors.UserError(
      f'{c.continue_from} cannot be continued: {claim.describe_changes(wrong)}; give '
      'its values, or start from its model alone with init_from.'
    )
  c.continue_from = f'{directory}@{step}'
  _take_words(c, theirs.data, directory)
  _put_before(c.phases, task.list_phases(theirs), step, c.model.rope_theta)
  if distributed.is_first():
    print(
      f'goes on from step {step:,} of {directory}; phases.steps={c.phases.steps}',
      flush=True,
    )
  return c


def find_checkpoint(name: str) -> tuple[str, int]:
  """Returns the directory of a run and the step of its checkpoint, by RUN[@STEP]."""
  directory, step = paths.split_step(name)
  steps = checkpoint_reader.list_steps(paths.checkpoints(directory))
  if not steps or step not in (None, *steps):
    raise errors.UserError(
      f'continue_from={name}: {directory} has checkpoints of the steps '
      f'{errors.listing(list(map(str, steps)))}; name a run that has one.'
    )
  return directory, steps[-1] if step is None else step


def _take_words(c, theirs, directory):
  """Takes the vocabulary of a run for data that are still to be prepared."""
  # Of data elsewhere, a run keeps the vocabulary and the manifest.
  data = directory if theirs.dir else paths.own_data(directory)
  made = manifest_file.read(data, 'recipe')['recipe']
  path = own = manifest_file.vocab_path(data)
  if c.data.dir or c.data.vocab:
    path = c.data.vocab or manifest_file.vocab_path(c.data.dir)
  else:
    c.data.vocab = own
  if load(path) != load(own):
    raise errors.UserError(
      f'{path} is not the vocabulary of {c.continue_from}, {own}; give that one, '
      'or neither data.vocab nor data.dir.'
    )
  c.data.vocab_size, c.data.lowercase = made['vocab_size'], made['lowercase']
  c.data.strip_accents = str(made['strip_accents']).lower()


def _put_before(own, phases, step, usual_theta):
  """Puts the phases of a run up to a step before those of a config."""
  done = [
    dataclasses.replace(x, steps=min(x.steps, step - x.first))
    for x in phases
    if x.first < step
  ]
  ended, begins = done[-1].rope_theta, own.rope_thetas or (usual_theta,)
  if ended > begins[0]:
    raise errors.UserError(
      f'continue_from had a rope_theta of {ended:g} at step {step:,}, and would go on '
      f'with {begins[0]:g}; give one for each phase in phases.rope_thetas.'
    )
  own.steps = (*(x.steps for x in done), *own.steps)
  for name in _OF_PHASES:
    own[name] = (*(getattr(x, name) for x in done), *own[name])
  for name in ('mask_rate', 'rope_theta'):
    if given := own[f'{name}s']:
      own[f'{name}s'] = (*(getattr(x, name) for x in done), *given)
  if own.learning_rates:
    # Of what is done, the rates are not used.
    first = own.learning_rates[0], *[0.0] * (len(done) - 1)
    own.learning_rates = (*first, *own.learning_rates)
    own.warmups = (*[0] * len(done), *own.warmups)
