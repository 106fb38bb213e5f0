"""The data of a pre-training run: prepared once, checked at every start."""

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.corpus import text_files
from bert_jax.data import dataset, manifest_file, prepare, recipe
from bert_jax.runtime import storage
from bert_jax.workdir import paths


def prepare_data(config: config_dict.ConfigDict, workdir: str):
  """Prepares the data of a config, unless it exists already.

  Only one process must call this; the others find the data in the working
  directory.
  """
  c = config.data
  check_directory(c.dir)
  if not c.dir:
    prepare.prepare(
      recipe.make_recipe(config),
      paths.prepared_data(config, workdir),
      prepare.local_runner(c.workers),
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
  directory = paths.prepared_data(config, workdir)
  directory = dataset.fetch(directory, set(config.phases.seq_length))
  manifest = manifest_file.read(directory)
  check_manifest(config, directory, manifest)
  words = manifest_file.load_tokenizer(directory).vocab
  lines = manifest_file.describe(manifest)
  lines += manifest_file.list_warnings(manifest, words)
  print('\n'.join(lines))
  return directory


def check_manifest(
  config: config_dict.ConfigDict, directory: str, manifest: dict
):
  """Raises errors.UserError unless prepared data fit the config."""
  for name in ('vocab_size', 'lowercase', 'pack'):
    there = manifest['recipe'][name]
    if there != config.data[name]:
      raise errors.UserError(
        f'{directory} has {name}={there}, the config '
        f'data.{name}={config.data[name]}; they must agree.'
      )
  there = manifest['recipe']['strip_accents']
  asked = recipe.make_recipe(config).strip_accents
  if asked not in (None, there):
    raise errors.UserError(
      f'{directory} has strip_accents={there}, the config '
      f'data.strip_accents={config.data.strip_accents}, with '
      f'data.lowercase={config.data.lowercase}; give it auto, which takes the '
      'data as it is, or prepare the data again.'
    )
  missing = [
    n for n in config.phases.seq_length if str(n) not in manifest['lengths']
  ]
  if missing:
    raise errors.UserError(
      f'{directory} has rows of {" and ".join(manifest["lengths"])} tokens, '
      f'none of {missing[0]} as phases.seq_length asks; change it, or prepare '
      f'the data with --max_seq_length={missing[0]} too.'
    )
  vocab_path = manifest_file.vocab_path(directory)
  if text_files.compute_sha256(vocab_path) != manifest['vocab_sha256']:
    raise errors.UserError(
      f'{vocab_path} is not the vocabulary that the data was made with; put '
      'that one back, or prepare the data again.'
    )
