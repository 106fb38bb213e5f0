"""Which checkpoints are sound, and what proves that one is damaged.

A damaged checkpoint is set aside for an older one. A disk that does not answer,
a full memory or a state of another version prove no damage: they stop the run.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.workdir import fingerprint


class Damaged(Exception):
  """What a checkpoint holds is not what was saved."""


# How TensorStore begins to say that bytes are missing or make no sense. Its
# other states, such as UNKNOWN and RESOURCE_EXHAUSTED, are those of a disk or of
# memory; what the operating system refused it ends with the code of that.
_DAMAGE = re.compile(
  '(NOT_FOUND|OUT_OF_RANGE|DATA_LOSS|FAILED_PRECONDITION): |'
  'Error (opening|reading|decoding) '
)
_OS_ERROR = 'os_error_code='
_DETAILS = re.compile(r' \[(tensorstore_spec|os_error_code).*', re.DOTALL)
_UNREADABLE_TEXT = (json.JSONDecodeError, UnicodeDecodeError)
_MOST = 200  # characters of another library's message


@contextlib.contextmanager
def judging(path: str):
  """Tells damage from everything else that fails in reading a checkpoint.

  Args:
    path: of the checkpoint.

  Raises:
    Damaged: for what proves that the checkpoint is damaged.
    errors.UserError: for what does not.
  """
  try:
    yield
  except (Damaged, errors.UserError):
    raise
  except Exception as error:
    cause = error
    while cause.__cause__ is not None:  # Orbax wraps TensorStore's errors
      cause = cause.__cause__
    if _proves_damage(cause):
      raise Damaged(_shorten(cause)) from error
    raise errors.UserError(
      f'cannot read the checkpoint {path}: {_shorten(cause)}. That does not '
      'prove it damaged, so nothing was moved. Put the cause right and run the '
      'same command again; or move this checkpoint away to use the one before.'
    ) from error


def _proves_damage(error: BaseException) -> bool:
  if isinstance(error, _UNREADABLE_TEXT):
    return True
  text = str(error)
  return (
    isinstance(error, ValueError)
    and _DAMAGE.match(text) is not None
    and _OS_ERROR not in text
  )


def check_files(path: str, names: Iterable[str]):
  """Raises Damaged if a file or folder of a checkpoint is missing.

  Orbax cannot tell: it takes what the disk gives no answer about for missing.

  Args:
    path: of the checkpoint.
    names: relative to it.

  Raises:
    OSError: if the disk does not say whether it is there.
  """
  for name in names:
    try:
      os.stat(os.path.join(path, name))
    except FileNotFoundError:
      raise Damaged(f'{name} is missing') from None


def restore_newest(steps: Iterable[int], restore: Callable):
  """Restores the newest step that is sound, and names those that are not.

  Args:
    steps: of the checkpoints.
    restore: returns what is in the checkpoint of a step; raises `Damaged` for
      a damaged one. Anything else that it raises ends the search.

  Returns:
    (found, problems): what `restore(step)` returned, None if it never did;
    and (step, what is wrong) of every newer one.
  """
  problems = []
  for step in sorted(steps, reverse=True):
    try:
      return restore(step), problems
    except Damaged as error:
      problems.append((step, str(error)))
      print(f'checkpoint {step} is bad: {error}', flush=True)
  return None, problems


def describe(problems: Sequence[tuple[int, str]]) -> str:
  """Returns 'step 3: what is wrong; step 2: ...' of `restore_newest`."""
  return '; '.join(f'step {step}: {problem}' for step, problem in problems)


def verify_facts(step: int, facts: dict):
  """Raises Damaged for facts that do not agree with one another."""
  try:
    mark = fingerprint.combine(facts['fingerprints'])
    said = facts['step'], facts['fingerprint']
  except (AttributeError, KeyError, TypeError) as error:
    raise Damaged(f'its facts are incomplete: {error}') from error
  if said != (step, mark):
    raise Damaged(
      f'it says step {said[0]} and fingerprint {said[1]}, but is step {step} '
      f'and {mark}'
    )


def verify(state: Any, fingerprints: dict[str, str]):
  """Raises Damaged for arrays that are not those of the fingerprints."""
  wrong = _find_different(fingerprint.of_arrays(state), fingerprints)
  if wrong:
    raise Damaged(
      f'{len(wrong)} array(s) differ from their fingerprint, first {wrong[0]}'
    )


def check_same_tree(path: str, stored: dict, wanted: dict):
  """Checks that a checkpoint holds the arrays that a run has.

  Args:
    path: of the checkpoint.
    stored: {name: what is known of the array} of the checkpoint.
    wanted: the same, of the run.

  Raises:
    errors.UserError: naming the first arrays that differ.
  """
  wrong = _find_different(stored, wanted)
  if wrong:
    listed = [
      f'{name}: {stored.get(name, "missing")} there, '
      f'{wanted.get(name, "missing")} here'
      for name in wrong
    ]
    raise errors.UserError(
      f'{path} holds another state than this run has, in {len(wrong)} array(s) '
      f'({errors.listing(listed, most=3)}): it was written by another version '
      'or with another optimizer. Nothing was moved. Use the version that wrote '
      'it, or another --workdir.'
    )


def _find_different(a: dict, b: dict) -> list[str]:
  return sorted(name for name in {*a, *b} if a.get(name) != b.get(name))


def _shorten(error: BaseException) -> str:
  """Returns a message in one line; its cause stands at the end."""
  lines = _DETAILS.sub('', str(error)).strip().splitlines() or ['']
  text = lines[0].rstrip('.')
  if isinstance(error, _UNREADABLE_TEXT):
    text = f'one of its JSON files is unreadable: {text}'
  if not isinstance(error, OSError | ValueError) or not text:
    text = f'{type(error).__name__} {text}'.strip()
  if len(text) <= _MOST:
    return text
  return f'{text[: _MOST // 4]} ... {text[-_MOST * 3 // 4 :]}'
