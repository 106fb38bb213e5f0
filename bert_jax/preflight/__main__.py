"""Says whether a run fits accelerators that you do not have yet.

  python -m bert_jax.preflight --config=configs/large.py --topology=v5e:4x4
  python -m bert_jax.preflight --config=configs/large.py --topology=h200:1

Compiles every program of the run with the compiler for TPUs or GPUs, on any
machine, and prints whether each compiles, the memory that they need, which batch
would fit, and about how long the run takes and what it costs. Times and prices
are estimates, never measurements.

The exit code is 2 if the run does not fit or cannot start.
"""

import functools

from absl import flags
from ml_collections import config_flags

from bert_jax import errors
from bert_jax.config import get_meanings
from bert_jax.runtime import cli


def choose_phases(phases: list, number: int | None, hlo: str | None) -> list:
  """Returns all phases, or the one of a number."""
  if number is None and hlo and len(phases) > 1:
    raise errors.UserError(
      '--hlo writes one program; say which by --phase=0 or another.'
    )
  if number is not None and not 0 <= number < len(phases):
    raise errors.UserError(
      f'--phase={number} is not one of 0 to {len(phases) - 1}; the config has '
      f'{len(phases)} phase(s).'
    )
  return phases if number is None else [phases[number]]


def main():
  """Runs the command; returns 2 if the run cannot work."""
  import jax

  from bert_jax import config_check
  from bert_jax.hardware import accelerators
  from bert_jax.preflight import examine, page
  from bert_jax.runtime import files
  from bert_jax.trainer import task

  # Only the compiler is used; accelerators of this machine stay free.
  jax.config.update('jax_platforms', 'cpu')
  values = flags.FLAGS
  config = values.config
  own = config.copy_and_resolve_references()
  own.init_from, own.resize_positions = '', False  # that model is not read
  own.data.update(add_words=0, general='')
  own.optimizer.learning_rate = abs(own.optimizer.learning_rate)
  config_check.check(own)
  topology = accelerators.parse(values.topology, values.slices)
  whole = task.list_phases(config)
  phases = choose_phases(whole, values.phase, values.hlo)

  say = functools.partial(print, flush=True)
  programs, examined, texts = examine.examine(
    config, topology, phases, values.quick, say
  )
  found = examine.make_report(
    topology, values.price, programs, examined, phases == whole
  )
  say('\n'.join(page.render(found, topology)))
  if values.json:
    files.write_json(values.json, found)
  if values.hlo:
    text = texts[phases[0].number]
    if text is None:
      raise errors.UserError(
        f'--hlo={values.hlo} was not written: the compiler refuses the step.'
      )
    files.write_text(values.hlo, text)
  fit = all(facts['fits'] for facts in examined)
  return 0 if fit and all(program['ok'] for program in programs) else 2


def _define_flags():
  config_flags.DEFINE_config_file(
    'config', None, 'The experiment, e.g. configs/large.py.'
  )
  flags.DEFINE_string(
    'topology',
    None,
    'What to run on: v5e:4x4 (chips along each axis), v5litepod-16, or GPUs '
    'such as h100:8.',
  )
  flags.DEFINE_integer('slices', 1, 'Number of slices.')
  flags.DEFINE_integer('phase', None, 'Phase to examine; by default all.')
  flags.DEFINE_bool(
    'quick', False, 'Compile 2 and 4 layers and extrapolate to all.'
  )
  flags.DEFINE_float('price', None, 'US dollars per chip and hour.', 0.0)
  flags.DEFINE_string('json', None, 'File for all figures.')
  flags.DEFINE_string(
    'hlo', None, 'File for the compiled training step of one phase, as text.'
  )
  flags.mark_flags_as_required(['config', 'topology'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main, fields=get_meanings())
