"""Writes a trained model in the format of others.

  python -m bert_jax.convert --from=WORKDIR --to=DIR --format=hf

--from is the directory of a run, of which the newest sound checkpoint is taken
or that of --step; the run may be training. Or it is a folder with a BERT that
Hugging Face's save_pretrained wrote, with safetensors.
"""

import jax
from absl import flags

from bert_jax import command, errors, run
from bert_jax.interop import hf_export, hf_load


def _define_flags():
  flags.DEFINE_string('from', None, 'A run, or a Hugging Face BERT folder.')
  flags.DEFINE_string('to', None, 'Folder to write; an older export goes.')
  flags.DEFINE_enum(
    'format', None, ['hf'], 'What to write: hf, for Hugging Face transformers.'
  )
  flags.DEFINE_integer(
    'step', None, 'Of which checkpoint of the run; none is the newest sound.'
  )
  flags.mark_flags_as_required(['from', 'to', 'format'])


def main(argv):
  """Runs the command."""
  if argv[1:]:
    raise errors.UserError(f'{argv[1]!r} is not a flag; see --help.')
  # The accelerator may be busy with training.
  jax.config.update('jax_platforms', 'cpu')
  source, target, step = (
    flags.FLAGS[name].value for name in ('from', 'to', 'step')
  )
  if run.is_run(source):
    *model, facts = run.read(source, step)
    origin = f'step {facts["step"]:,}, fingerprint={facts["fingerprint"]}'
  elif step is None:
    model, origin = hf_load.load(source), source
  else:
    raise errors.UserError(
      f'{source} is not the directory of a run, so --step={step} means '
      'nothing; leave it out.'
    )
  hf_export.export(target, *model)
  print(f'wrote {target}: {origin}')


if __name__ == '__main__':
  _define_flags()
  command.run(main)
