"""Whether the programs of a run can be compiled, as preflight reports it."""

from collections.abc import Iterable

from bert_jax.train import programs


def judge(
  examined: Iterable[tuple[programs.Program, str | None]],
) -> list[dict]:
  """Returns `{name, phase, ok, reason}` of each kind of program.

  Args:
    examined: (program, why it cannot be compiled or None). Those of the same
      name and phase, such as for batches of several lengths, have one result:
      that of the first that failed.
  """
  examined = list(examined)
  lengths: dict[int | None, set] = {}
  for program, _ in examined:
    lengths.setdefault(program.phase, set()).add(program.length)
  found: dict[tuple, dict] = {}
  for program, reason in examined:
    key = program.name, program.phase
    first = {'name': key[0], 'phase': key[1], 'ok': True, 'reason': None}
    verdict = found.setdefault(key, first)
    if reason and verdict['ok']:
      many = len(lengths[program.phase]) > 1
      where = f'at length {program.length} ' if many else ''
      verdict.update(ok=False, reason=f'{where}{reason}')
  return list(found.values())
