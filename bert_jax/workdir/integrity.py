"""Which checkpoints are sound: what a fingerprint proves of each."""

from collections.abc import Callable, Iterable, Sequence

from bert_jax import errors
from bert_jax.workdir import fingerprint


def restore_newest(steps: Iterable[int], restore: Callable):
  """Restores the newest step that can be, and names those that cannot.

  Args:
    steps: of the checkpoints.
    restore: returns what is in the checkpoint of a step; raises for a bad one.

  Returns:
    (found, problems): what `restore(step)` returned, None if it never did;
    and (step, what is wrong) of every newer one.
  """
  problems = []
  for step in sorted(steps, reverse=True):
    try:
      return restore(step), problems
    except (MemoryError, PermissionError):
      raise  # these say nothing about the checkpoint
    except Exception as error:
      if 'RESOURCE_EXHAUSTED' in str(error):  # nor does a full device
        raise
      problems.append((step, errors.first_line(error)))
      print(f'checkpoint {step} is bad: {errors.first_line(error)}', flush=True)
  return None, problems


def describe(problems: Sequence[tuple[int, str]]) -> str:
  """Returns 'step 3: what is wrong; step 2: ...' of `restore_newest`."""
  return '; '.join(f'step {step}: {problem}' for step, problem in problems)


def verify_facts(step: int, facts: dict):
  """Raises ValueError for facts that do not agree with one another."""
  mark = fingerprint.combine(facts['fingerprints'])
  if facts['step'] != step or facts['fingerprint'] != mark:
    raise ValueError(
      f'it says step {facts["step"]} and fingerprint {facts["fingerprint"]}, '
      f'but is step {step} and {mark}'
    )


def verify(state, fingerprints: dict[str, str]):
  """Raises ValueError for arrays that are not those of the fingerprints."""
  actual = fingerprint.of_arrays(state)
  wrong = sorted(
    name
    for name in {*actual, *fingerprints}
    if actual.get(name) != fingerprints.get(name)
  )
  if wrong:
    raise ValueError(
      f'{len(wrong)} array(s) differ from their fingerprint, first {wrong[0]}'
    )
