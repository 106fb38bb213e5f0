"""BERT pre-training in JAX: raw text to a BERT that others can load."""

import importlib

__version__ = '0.1.0'


# Imported in the functions, since that of jax takes seconds.
def train(config, workdir: str):
  """Trains by a config of `get_config`, as the command; see `main.train`."""
  importlib.import_module('bert_jax.main').train(config, workdir)


def load(model: str):
  """Reads a trained model, see `trained.load`."""
  return importlib.import_module('bert_jax.trained').load(model)


def get_config(name: str):
  """Returns the config that --config=NAME is, such as 'tiny:smoke,seed=3'."""
  return importlib.import_module('bert_jax.runtime.cli').load_config(name)
