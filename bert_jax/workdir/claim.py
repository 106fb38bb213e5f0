"""Ensures that a run's directory has one config and writer, on all hosts."""

import contextlib
import json
import os
import re
from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import FIELDS, declare_fields, flatten, to_json
from bert_jax.config.declaration import ANOTHER, SAME_MEANING, SAME_RESULT
from bert_jax.parallel import distributed
from bert_jax.runtime import files, hub, lock, storage
from bert_jax.workdir import checkpoint_reader, integrity, paths


def find_differences(
  old: dict, config: config_dict.ConfigDict
) -> dict[str, dict]:
  """Returns {class: {field: {'was': value, 'is': value}}} of a saved config's JSON.

  Fields that it lacks have their defaults.
  """
  new = _as_json(config)
  old = {**_as_json(declare_fields()), **old}
  found = {SAME_RESULT: {}, SAME_MEANING: {}, ANOTHER: {}}
  for name in sorted({*old, *new}):
    was, now = old.get(name), new.get(name)
    if was != now:
      found[_classify(name, config)][name] = {'was': was, 'is': now}
  return found


def describe_changes(changed: dict) -> str:
  """Returns 'seed was 0, is 3; ...' for fields of one class."""
  return '; '.join(
    f'{name} was {values["was"]!r}, is {values["is"]!r}'
    for name, values in changed.items()
  )


def _classify(name: str, config) -> str:
  # With this unit, each micro-batch is clipped separately.
  micro = config.optimizer.clip_unit == 'micro_batch'
  # The best checkpoint is among the evaluated ones.
  best = config.finetuning.select == 'best'
  if (name == 'phases.accumulate' and micro) or (name == 'eval.every' and best):
    return ANOTHER
  return FIELDS[name].resume if name in FIELDS else ANOTHER


def _as_json(config) -> dict:
  return json.loads(to_json(config))


@contextlib.contextmanager
def claim(workdir: str, config: config_dict.ConfigDict):
  """Locks a working directory for a config, creating it if necessary.

  Until training has begun the config may change, for example to correct a wrong
  path. From then on, only changes that keep the meaning of the run are allowed;
  they are printed, and `adopt` saves them when they are logged. For others, or if
  another process has locked it, it raises errors.UserError.
  """
  make_folder(workdir)
  with lock.exclusive(os.path.join(workdir, '.lock')):
    storage.remove_unfinished(workdir)
    if is_final(workdir):
      check_config(workdir)
      _announce(workdir, _compare(workdir, config))
    else:
      adopt(workdir, config)
    yield


def make_folder(workdir: str):
  """Makes a working directory; raises errors.UserError if it cannot."""
  what = f'cannot make --workdir={workdir}'
  with errors.explaining(what, 'name another folder.'):
    storage.make_folder(workdir)


def has_begun(workdir: str) -> bool:
  """Returns whether a run has a checkpoint, so that its config is final."""
  return bool(checkpoint_reader.list_steps(paths.checkpoints(workdir)))


def is_final(workdir: str) -> bool:
  """Returns whether a run has begun to train, so that its config is final."""
  # Training makes the folder, but a bucket has no folders, and objects there
  # may be left of an interrupted save.
  if storage.is_remote(workdir):
    return has_begun(workdir)
  return storage.exists(paths.checkpoints(workdir))


def check_config(workdir: str):
  """Raises errors.UserError if a run has checkpoints, but no config."""
  path = paths.config(workdir)
  if has_begun(workdir) and not storage.exists(path):
    raise errors.UserError(
      f'{path} is missing, which says with what the checkpoints beside it were '
      'trained; restore it from a copy, or use another --workdir.'
    )


def restore(
  config: config_dict.ConfigDict, workdir: str, chosen: Callable[[str], bool]
) -> dict:
  """Sets chosen fields to the values that a run saved when it began.

  Returns all that it saved, flat; what an earlier version lacks has its default.
  """
  check_config(workdir)
  saved = flatten(declare_fields()) | files.read_json(paths.config(workdir))
  with config.ignore_type():
    config.update_from_flattened_dict(
      {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in saved.items()
        if chosen(name)
      }
    )
  return saved


def pin_sources(
  config: config_dict.ConfigDict, workdir: str
) -> config_dict.ConfigDict:
  """Returns a config with the commits of the hub's models in `init_from`.

  A run keeps those that it began with.
  """
  given = config.init_from
  if hub.MODEL not in given:
    return config
  config = config.copy_and_resolve_references()
  if is_final(workdir):
    restore(config, workdir, lambda name: name == 'init_from')
    if re.sub('@[0-9a-f]{40}', '', config.init_from) == given:
      return config
  config.init_from = ','.join(map(hub.pin_model, given.split(',')))
  return config


def find_changes(
  workdir: str, config: config_dict.ConfigDict
) -> dict[str, dict]:
  """Returns {field: {'was': value, 'is': value}} of what has changed."""
  kinds = _compare(workdir, config).values()
  return {name: x for fields in kinds for name, x in fields.items()}


def adopt(workdir: str, config: config_dict.ConfigDict):
  """Saves a config in its working directory."""
  files.write_text(paths.config(workdir), to_json(config))


def keep(workdir: str, directory: str):
  """Copies to a run what its model needs of data that are elsewhere.

  Inference reads nothing outside of a run. One that has begun keeps its files.
  """
  names = 'vocab.txt', 'tokenizer.json', 'manifest.json'  # the last one last
  if has_begun(workdir) and storage.exists(os.path.join(workdir, names[-1])):
    return
  for name in names:
    path, theirs = (os.path.join(x, name) for x in (workdir, directory))
    if storage.exists(theirs):
      storage.write(path, storage.read(theirs))
    else:  # it may be of a start with another tokenizer
      storage.delete(path)


def _compare(workdir, config) -> dict:
  path = paths.config(workdir)
  if not storage.exists(path):
    return {}
  return find_differences(files.read_json(path), config)


def _announce(workdir, found):
  described = {kind: describe_changes(x) for kind, x in found.items() if x}
  for name in sorted(found.get(ANOTHER, {}).keys() - FIELDS.keys()):
    raise errors.UserError(
      f'{paths.config(workdir)}: {name!r} is not a field of this version; use the '
      'one that saved it, or another --workdir.'
    )
  if ANOTHER in described:
    more = ''
    if 'phases.steps' in found[ANOTHER]:
      more = f' For more steps, start another run with init_from={workdir}.'
    raise errors.UserError(
      f'{workdir} belongs to another config ({described[ANOTHER]}); '
      f'use another --workdir or the old values.{more}'
    )
  if SAME_RESULT in described:
    print(
      'the config has changed, which does not change the result: '
      f'{described[SAME_RESULT]}'
    )
  if SAME_MEANING in described:
    print(
      'the run is no longer bit-identical to an unchanged run: '
      f'{described[SAME_MEANING]}'
    )


def check_shared(workdir: str):
  """Checks that all processes see what process 0 writes.

  All write their part of a checkpoint there. Every process must call this.
  """
  if jax.process_count() == 1:
    return
  random = np.frombuffer(os.urandom(8), np.uint8)
  token = multihost_utils.broadcast_one_to_all(random).tobytes()
  path = os.path.join(workdir, '.shared')

  def write():
    storage.make_folder(workdir)
    storage.write(path, token)

  def look():
    with contextlib.suppress(OSError):
      if storage.read(path) == token:
        return
    raise errors.UserError(
      f'{workdir} does not have what host 0 wrote there; give a --workdir '
      'that all hosts share: gs://BUCKET/NAME, or a shared disk.'
    )

  integrity.agree(write if distributed.is_first() else lambda: None)
  try:
    integrity.agree(look)
  finally:
    if distributed.is_first():
      with contextlib.suppress(OSError):  # it does no harm
        storage.delete(path)
