"""Checks the config of a run, and prints what its price depends on as JSON.

python launch/check_config.py --config=configs/large.py [--config.field=value]
"""

import json
import os
import sys

from ml_collections import config_flags

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bert_jax import config_check
from bert_jax.runtime import cli


def main(argv: list[str]):
  """Runs the command."""
  del argv
  from absl import flags

  config = cli.get_config(flags.FLAGS)
  config_check.check(config)
  print(json.dumps({'checkpoint_every': config.checkpoint.every}))


if __name__ == '__main__':
  config_flags.DEFINE_config_file('config', None, 'The experiment.')
  cli.run(main)
