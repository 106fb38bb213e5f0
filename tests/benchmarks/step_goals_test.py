"""How a step on a GPU is judged, by figures made up for one."""

import os
import types

import pytest
import step_goals

from bert_jax import config
from bert_jax.hardware import chips
from bert_jax.runtime import compilers

PEAK = chips.get('h200').flops
NEEDED = 10 * 2**30
needs_compiler = pytest.mark.skipif(
  not any(map(compilers.is_installed, compilers.CUDA.values())),
  reason="needs 'bert_jax[gpu-compiler]'",
)


def make_config(size='base'):
  """Returns a config of one phase, of 8 rows of 128 tokens."""
  c = config.pretraining(size)
  phase = {'seq_length': 128, 'batch_size': 8, 'steps': 9, 'accumulate': 1}
  c.phases.update({name: (value,) for name, value in phase.items()})
  c.phases.max_predictions = (20,)
  c.model.dtype = 'bfloat16'
  return c


@pytest.mark.parametrize(
  'share, memory, device, medians, good, words',
  [
    (0.5, 1.0, 'H200', {'PyTorch': 2.0}, True, 'PASS PASS PASS PASS'),
    (0.4, 1.0, 'H200', {'PyTorch': 2.0}, False, 'PASS FAIL PASS PASS'),
    (0.2, 1.0, 'H200', {'PyTorch': 2.0}, False, 'PASS FAIL FAIL PASS'),
    (0.5, 1.2, 'H200', {'PyTorch': 2.0}, False, 'PASS PASS PASS FAIL'),
    (0.5, 0.8, 'H200', {'PyTorch': 2.0}, False, 'PASS PASS PASS FAIL'),
    (0.5, None, 'H200', {'PyTorch': 2.0}, True, 'PASS PASS PASS SKIP'),
    (0.5, 1.0, 'H200', {}, True, 'SKIP PASS PASS PASS'),
    (0.5, 1.0, 'T4', {'PyTorch': 2.0}, True, 'PASS SKIP'),
    (0.5, 1.0, 'T4', {'PyTorch a': 2.0, 'PyTorch b': 1.2}, False, 'PASS FAIL SKIP'),
  ],
)  # fmt: skip
def test_each_goal_is_judged_and_what_cannot_be_is_said(
  monkeypatch, capsys, share, memory, device, medians, good, words
):
  facts = {
    'model_flops_per_step': PEAK,
    'step_seconds_estimate': [1 / 0.65, 1 / 0.25],
    'needed_bytes': NEEDED,
  }
  monkeypatch.setattr(step_goals, 'foresee', lambda c, chip: facts)
  ours = types.SimpleNamespace(
    device=f'NVIDIA {device}',
    seconds=[1 / share],
    last={'peak_bytes': memory and memory * NEEDED},
  )
  medians = {'bert_jax': 1.0, **medians}
  assert step_goals.judge(make_config(), ours, medians) == good
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(':')[0] for line in lines] == words.split()


@pytest.mark.slow
@needs_compiler
def test_memory_and_time_are_those_of_preflight(monkeypatch):
  monkeypatch.setenv('XLA_FLAGS', os.environ.get('XLA_FLAGS', ''))
  monkeypatch.setenv('XLA_CLIENT_MEM_FRACTION', '0.75')
  facts = step_goals.foresee(make_config('tiny'), chips.get('rtx4090'))
  assert facts['usable_bytes'] == 18 * 2**30
  assert 0 < facts['needed_bytes'] < 2**30
  low, high = facts['step_seconds_estimate']
  assert 0 < low < high < 1
