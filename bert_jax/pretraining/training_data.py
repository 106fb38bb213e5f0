"""The data of a pre-training run: prepared once, checked at every start."""

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import dataset, manifest_file, prepare, recipe, summary
from bert_jax.runtime import storage
from bert_jax.workdir import paths


def prepare_data(config: config_dict.ConfigDict, workdir: str):
  """Prepares the data of a config, unless it exists already, in one process."""
  check_directory(config.data.dir)
  if not config.data.dir:
    prepare.prepare(
      recipe.make_recipe(config),
      paths.own_data(workdir),
      prepare.local_runner(config.data.workers),
    )


def check_directory(directory: str):
  """Raises errors.UserError if `data.dir` is given, but does not exist."""
  if directory and not storage.exists(directory):
    raise errors.UserError(
      f'data.dir={directory} does not exist; make it with bert_jax.data.prepare, '
      'or leave data.dir empty.'
    )


def check_data(config: config_dict.ConfigDict, workdir: str) -> str:
  """Prints a summary of a run's prepared data; returns a local directory.

  Data in a bucket are copied to each host first, see `dataset`.
  """
  lengths = config.phases.seq_length
  directory = config.data.dir or paths.own_data(workdir)
  directory = dataset.fetch(directory, set(lengths))
  manifest = manifest_file.read(directory)
  asked = recipe.make_recipe(config)
  made = {'rows': 'pairs'} | manifest['recipe']
  for name in ('vocab_size', 'lowercase', 'rows', 'pack', 'strip_accents'):
    there, ours = made[name], getattr(asked, name)
    if ours not in (there, None):  # None takes the data as they are
      raise errors.UserError(
        f'{directory} has {name}={there}, the config data.{name}='
        f'{config.data[name]}; change the config, or prepare the data again.'
      )
  for length in lengths:
    if str(length) not in manifest['lengths']:
      raise errors.UserError(
        f'{directory} has rows of {" and ".join(manifest["lengths"])} tokens, '
        f'none of {length} as phases.seq_length asks; change it, or prepare '
        f'the data with --max_seq_length={length} too.'
      )
  vocab_path = manifest_file.vocab_path(directory)
  if text_files.compute_sha256(vocab_path) != manifest['vocab_sha256']:
    raise errors.UserError(
      f'{vocab_path} is not the vocabulary that the data was made with; put '
      'that one back, or prepare the data again.'
    )
  words = manifest_file.load_tokenizer(directory).vocab
  lines = summary.describe(manifest)
  print('\n'.join(lines + summary.list_warnings(manifest, words)))
  return directory
