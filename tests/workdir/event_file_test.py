"""Tests of event files; log_test.py reads them with TensorBoard."""

import os

from tests import environment, processes

_CODE = """
import sys
from bert_jax.workdir import log

with log.Log(sys.argv[1], 0) as rows:
  rows.write('train', 1, {'loss': 1.0})
"""


def test_a_log_does_not_import_pytorch(tmp_path):
  (tmp_path / 'torch.py').write_text('raise SystemExit("PyTorch is imported")')
  env = environment.for_devices(1)
  env['PYTHONPATH'] = os.pathsep.join([str(tmp_path), processes.ROOT])
  done = processes.run_code(_CODE, str(tmp_path), env=env)
  assert done.returncode == 0, done.stderr
