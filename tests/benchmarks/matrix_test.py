"""The kinds of runs that benchmarks/tpu/matrix.py compiles."""

import subprocess

import matrix
import pytest


@pytest.mark.parametrize('name', matrix.CASES)
def test_the_config_of_a_case_is_valid_and_small(name):
  case = matrix.CASES[name]
  c = matrix.make_config(case)
  assert c.phases.seq_length == case.lengths
  assert len(c.phases.steps) == len(case.lengths)
  assert c.model.num_layers <= 2 and c.data.vocab_size == 2000
  assert (c.task == 'pretraining') == (case.kind == 'pretraining')


def test_a_cell_that_failed_is_compiled_again(monkeypatch, tmp_path):
  ends = [(-9, ''), (0, 'fused\n')]

  def run(command, **how):
    return subprocess.CompletedProcess(command, *ends.pop(0), stderr='')

  monkeypatch.setattr(matrix.subprocess, 'run', run)
  found = [matrix.run_cell(str(tmp_path), 'v5e', 'base') for _ in range(3)]
  assert found == ['FAILED: exit code -9: ', 'fused', 'fused']
