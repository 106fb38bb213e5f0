"""Decides which checkpoints are damaged.

A damaged checkpoint is moved aside, and an older one is used. A disk error, a
lack of memory or a state tree of another version do not prove damage; these
stop the run.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bert_jax import errors
from bert_jax.parallel import agreement
from bert_jax.workdir import fingerprint


class Damaged(Exception):
  """The content of a checkpoint is not what was saved."""


# How TensorStore's errors about missing or invalid bytes begin. Other codes,
# such as UNKNOWN and RESOURCE_EXHAUSTED, are about disk or memory; messages of
# operating system errors end with the error's code.
_DAMAGE = re.compile(
  '(NOT_FOUND|OUT_OF_RANGE|DATA_LOSS|FAILED_PRECONDITION): |'
  'Error (opening|reading|decoding) '
)
_OS_ERROR = 'os_error_code='
_DETAILS = re.compile(r' \[(tensorstore_spec|os_error_code).*', re.DOTALL)
_UNREADABLE_TEXT = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)


# What `agree` raises on all hosts, the first of them if hosts differ: so if one
# host cannot access its disk, no host calls a checkpoint damaged.
FAILURES = (OSError, errors.UserError, Damaged)


@contextlib.contextmanager
def judging(path: str):
  """Turns errors that prove a checkpoint damaged into Damaged.

  All others become OSErrors.
  """
  try:
    yield
  except FAILURES:
    raise
  except Exception as error:
    cause = error
    while cause.__cause__ is not None:  # Orbax wraps TensorStore's errors
      cause = cause.__cause__
    if _proves_damage(cause):
      raise Damaged(_shorten(cause)) from error
    raise OSError(
      f'cannot read the checkpoint {path}: {_shorten(cause)}. That does not '
      'prove it damaged, so nothing was moved. Fix the cause and run the same '
      'command again; or move this checkpoint away to use the previous one.'
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


def agree(read: Callable[[], Any]):
  """Returns the result of `read`; if it fails on any host, all hosts raise.

  All raise the same error, see FAILURES.
  """
  result = failure = None
  try:
    result = read()
  except FAILURES as error:
    failure = error
  kinds = [k for k, kind in enumerate(FAILURES) if isinstance(failure, kind)]
  texts = agreement.gather_texts(json.dumps([*kinds, str(failure)]))
  hosts = enumerate(map(json.loads, texts))
  told = [(k, host, text) for host, (*kinds, text) in hosts for k in kinds]
  if not told:
    return result
  if len(texts) == 1:
    raise failure
  kind, host, text = min(told)
  raise FAILURES[kind](f'on host {host}: {text}') from failure


def restore_newest(steps: Iterable[int], restore: Callable):
  """Restores the newest undamaged step, and lists the damaged ones.

  Returns (found, problems): the result of `restore(step)`, None if that raises
  `Damaged` for all; and (step, error) of every newer checkpoint.
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
  """Returns 'step 3: error; step 2: ...' for problems of `restore_newest`."""
  return '; '.join(f'step {step}: {problem}' for step, problem in problems)


def verify_facts(step: int, facts: dict):
  """Raises Damaged if a checkpoint's facts contradict one another."""
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
  """Raises Damaged if arrays do not match their fingerprints."""
  wrong = _find_different(fingerprint.of_arrays(state), fingerprints)
  if wrong:
    raise Damaged(
      f'{len(wrong)} array(s) differ from their fingerprint, first {wrong[0]}'
    )


def check_same_tree(path: str, stored: dict, wanted: dict):
  """Checks that {name: description} of a checkpoint's arrays is the run's."""
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
  """Returns an error's message as one line."""
  lines = _DETAILS.sub('', str(error)).strip().splitlines() or ['']
  text = lines[0].rstrip('.')
  if isinstance(error, _UNREADABLE_TEXT):
    text = f'one of its JSON files is unreadable: {text}'
  if not isinstance(error, OSError | ValueError) or not text:
    text = f'{type(error).__name__} {text}'.strip()
  return text
