"""BERT pre-training in JAX: raw text to a BERT that others can load."""

__version__ = '0.1.0'


# Imported in the functions, since that of jax takes seconds.
def train(config, workdir: str):
  """Trains by a config of `get_config`, as `bert_jax.main`; see `main.train`."""
  from bert_jax import main

  main.train(config, workdir)


def load(model: str, step: int | None = None):
  """Reads a trained model, see `trained.load`."""
  from bert_jax import trained

  return trained.load(model, step)


def get_config(name: str):
  """Returns the config that --config=NAME is, such as 'tiny:smoke,seed=3'."""
  from bert_jax.runtime import config_files

  return config_files.load(name)
