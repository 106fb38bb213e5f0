"""What is told of a run before its GPUs are rented."""

import functools

import jax
import pytest

from bert_jax import config, errors
from bert_jax.hardware import accelerators
from bert_jax.preflight import examine, gpus, page
from bert_jax.train import programs, task


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
  """Keeps the settings of this machine out of the estimates."""
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path))
  for name in gpus._FRACTIONS:
    monkeypatch.delenv(name, raising=False)


def examine_run(name, arguments=''):
  """Returns (report, topology) of the first phase of MINI."""
  c = config.pretraining('mini')
  c.update_from_flattened_dict(
    {f'phases.{k}': v[:1] for k, v in c.phases.items()}
  )
  config.apply_arguments(c, f'num_layers=1,{arguments}')
  where, phases = accelerators.parse(name), task.list_phases(c)
  found = gpus.examine_run(c, where, phases, lambda line: None)
  return examine.make_report(c, where, phases, None, *found), where


FITTING = 'a100-40gb:4', 'batch_size=64'
examine_fitting = functools.cache(lambda: examine_run(*FITTING))


def test_the_page_of_a_run_that_fits():
  report, where = examine_fitting()
  assert {p['name'] for p in report['programs']} >= {
    programs.TRAIN,
    programs.EVALUATE,
    programs.INITIALISE,
  }
  assert all(p['ok'] for p in report['programs'])
  (facts,) = report['phases']
  assert facts['needed_bytes'] == sum(facts['memory'].values())
  assert facts['usable_bytes'] == 30 * 2**30
  text = '\n'.join(page.render(report, where))
  assert 'of the run lower for CUDA' in text
  assert 'of 30.00 GiB per device (modelled)' in text
  assert 'FITS' in text and 'activations' in text and 'logits' in text
  assert 'a roofline, not a measurement' in text
  lines = page.render(report | {'slices': 2}, where)
  assert 'Between hosts, links are taken' in lines[-1]


@pytest.mark.slow
def test_what_does_not_fit_is_told_what_would():
  def phase(**changes):
    arguments = {'batch_size': 2**14, 'dtype': 'bfloat16', **changes}
    text = ','.join(f'{k}={v}' for k, v in arguments.items())
    report, where = examine_run('rtx4090:1', text)
    return report['phases'][0], '\n'.join(page.render(report, where))

  facts, text = phase()
  assert not facts['fits']
  parts = facts['accumulate_that_fits_estimate']
  assert f'phases.accumulate={parts} should make it fit' in text
  assert phase(accumulate=parts)[0]['fits']
  assert not phase(accumulate=parts // 2)[0]['fits']
  largest = facts['largest_batch_estimate']
  assert phase(batch_size=largest)[0]['fits']
  assert not phase(batch_size=round(1.01 * largest))[0]['fits']


@pytest.mark.slow
def test_float32_is_as_slow_as_the_gpu_is_in_it():
  def seconds(arguments):
    (facts,) = examine_run('a100-40gb:1', arguments)[0]['phases']
    return facts['step_seconds_parts']['computation at peak']

  assert seconds('') == pytest.approx(16 * seconds('dtype=bfloat16'))
  rounded = seconds('compute.matmul_precision=tensorfloat32')
  assert seconds('') == pytest.approx(8 * rounded)


def test_a_program_that_does_not_lower_is_named(monkeypatch):
  def fail(self, **how):
    raise NotImplementedError('no such op.\nMore of it')

  (facts,) = examine_fitting()[0]['phases']
  monkeypatch.setattr(jax.stages.Traced, 'lower', fail)
  monkeypatch.setattr(gpus, '_examine_phase', lambda *given: facts)
  report, where = examine_run(*FITTING)
  text = '\n'.join(page.render(report, where))
  assert 'CANNOT BE LOWERED FOR CUDA' in text
  assert 'training step of phase 0: it cannot be lowered for CUDA: no s' in text


@pytest.mark.parametrize(
  'name', ('XLA_CLIENT_MEM_FRACTION', 'XLA_PYTHON_CLIENT_MEM_FRACTION')
)
def test_the_share_of_a_gpu_is_that_of_the_variable(monkeypatch, name):
  assert gpus.get_usable_memory(40) == 30
  monkeypatch.setenv(name, '0.9')
  assert gpus.get_usable_memory(40) == 36
  monkeypatch.setenv(name, 'most')
  with pytest.raises(errors.UserError, match=f'{name}=most is not a number'):
    gpus.get_usable_memory(40)


def test_a_batch_that_the_gpus_cannot_share_is_refused():
  with pytest.raises(errors.UserError, match='batch_size'):
    examine_run('h100:4', 'batch_size=6')
