"""The directory of a run: one config, one writer."""

import contextlib
import json
import os

from bert_jax import config as config_lib
from bert_jax import errors
from bert_jax.runtime import files, lock
from bert_jax.workdir import paths

# These change what is seen and kept, not what is computed.
_FREE = ('log.', 'checkpoint.', 'data.workers', 'data.dir', 'profile_steps')


@contextlib.contextmanager
def claim(workdir: str, config):
  """Holds a working directory for a config, making it if it is not there.

  A directory belongs to its config once training has begun: what fails before,
  for want of text for example, may be put right.

  Raises:
    errors.UserError: if another process holds it, or if it belongs to another
      config (names every field that differs).
  """
  try:
    os.makedirs(workdir, exist_ok=True)
  except OSError as error:
    raise errors.UserError(
      f'cannot make --workdir={workdir}: {error}'
    ) from None
  with lock.exclusive(os.path.join(workdir, '.lock')):
    path = paths.config(workdir)
    begun = os.path.isdir(paths.checkpoints(workdir))
    if begun and os.path.exists(path):
      _check_same(path, config)
    files.write_text(path, config_lib.to_json(config))
    yield


def _check_same(path: str, config):
  try:
    with open(path, encoding='utf-8') as file:
      old = json.load(file)
  except ValueError as error:
    raise errors.UserError(f'{path} is not readable: {error}') from None
  new = json.loads(config_lib.to_json(config))
  # Fields that are younger than the run have the value that they stood for.
  default = json.loads(config_lib.to_json(config_lib.pretraining('base')))
  old = {**{name: default[name] for name in new}, **old}
  changed = [
    f'{name}: {old.get(name)!r} there, {new.get(name)!r} now'
    for name in sorted({*old, *new})
    if old.get(name) != new.get(name) and not name.startswith(_FREE)
  ]
  if changed:
    raise errors.UserError(
      f'{os.path.dirname(path)} belongs to another config '
      f'({"; ".join(changed)}); use another --workdir or the old values.'
    )
