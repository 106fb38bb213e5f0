"""Calibrates preflight's times for a chip with a measured run.

  python -m bert_jax.preflight --config=configs/base.py --topology=v5e:2x2 \\
    --json=estimate.json
  python -m bert_jax.calibrate --workdir=runs/mine --estimate=estimate.json

Compares the speed in the run's metrics.jsonl with preflight's estimate for the
same config on the same slice, and stores the ratio of each phase for that chip,
with the date and the versions of jax and libtpu. From then on, preflight
corrects its estimates for the chip by these ratios, with a narrower range, and
says so. The first row of a phase and the first after a restart are slower and
are ignored; a run that waited for its input is rejected.

The ratios of the last run on each chip are in
~/.config/bert_jax/calibration.json; delete the file to discard them.
"""

from absl import flags

from bert_jax import errors
from bert_jax.runtime import cli


def _check_estimate(estimated, path):
  needed = {'topology', 'devices', 'slices', 'jax', 'config', 'phases'}
  if not needed <= set(estimated):
    raise errors.UserError(
      f'{path} is not of this preflight; give what its --json=FILE wrote.'
    )


def _check_config(estimated, config):
  """Raises errors.UserError unless a run's config is the estimated one."""
  for name, allowed in estimated.items():
    if config.get(name) != allowed:
      raise errors.UserError(
        f'the run has {name}={config.get(name)}, the estimate {allowed}; run '
        'preflight with the config of the run.'
      )


def main():
  from bert_jax import tasks
  from bert_jax.config import flatten
  from bert_jax.inference import trained_run
  from bert_jax.preflight import measured_ratios
  from bert_jax.runtime import files, storage
  from bert_jax.train import task
  from bert_jax.workdir import log, paths

  values = flags.FLAGS
  estimated = files.read_json(
    values.estimate, 'give what preflight --json=FILE wrote'
  )
  _check_estimate(estimated, values.estimate)
  workdir = storage.resolve(values.workdir)
  config = trained_run.read_config(paths.config(workdir))
  _check_config(estimated['config'], flatten(config))
  rows, phases = log.read(paths.metrics(workdir)), task.list_phases(config)
  objective = tasks.get(config).make_objective(config)
  flops = [objective.flops(phase) for phase in phases]
  entry = measured_ratios.compare(estimated, rows, phases, flops)
  measured_ratios.store(entry)
  for facts in entry['phases']:
    real, model = facts['seconds'], facts['model_seconds']
    print(
      f'phase {facts["number"]}: {real * 1e3:,.3g} ms per step, the model says '
      f'{model * 1e3:,.3g}: {real / model:.2f} times'
    )
  print(f'kept for {entry["chip"]} in {measured_ratios.default_path()}')


def _define_flags():
  flags.DEFINE_string('workdir', None, 'Directory of the run on real hardware.')
  flags.DEFINE_string('estimate', None, 'What preflight --json=FILE wrote.')
  flags.mark_flags_as_required(['workdir', 'estimate'])


if __name__ == '__main__':
  _define_flags()
  cli.run(main)
