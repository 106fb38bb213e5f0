"""Makes datasets of TFDS, as if they had been downloaded."""

import pytest


def write(folder, name, features, splits):
  """Writes a dataset.

  Args:
    features: what makes {feature: type} of the module `tfds.features`.
    splits: {name: rows}.
  """
  tfds = pytest.importorskip('tensorflow_datasets')

  def describe(self):
    found = tfds.features.FeaturesDict(features(tfds.features))
    return tfds.core.DatasetInfo(builder=self, features=found)

  def generate(self, manager):
    del self, manager
    return {split: iter(enumerate(rows)) for split, rows in splits.items()}

  builder = type(
    name.capitalize(),  # which names the dataset
    (tfds.core.GeneratorBasedBuilder,),
    {
      'VERSION': tfds.core.Version('1.0.0'),
      '_info': describe,
      '_split_generators': generate,
      '_generate_examples': None,
    },
  )
  builder(
    data_dir=str(folder), file_format='array_record'
  ).download_and_prepare()


def use(folder, monkeypatch):
  """Lets a test find the datasets of a folder."""
  import tensorflow_datasets as tfds

  monkeypatch.setattr(tfds.core.constants, 'DATA_DIR', folder)
  monkeypatch.setenv('TFDS_DATA_DIR', folder)
