"""What a run on real hardware makes of later estimates."""

import json
import os

import pytest

from bert_jax import calibrate, config, errors
from bert_jax.preflight import measured_ratios
from bert_jax.pretraining import pretrain
from bert_jax.train import task
from tests import commands

RUN = {'kind': 'run', 'step': 0, 'device_kind': 'TPU v5 lite', 'devices': 4}


def phase(**changes):
  fields = {'number': 0, 'first': 0, 'steps': 1000, 'seq_length': 128}
  fields |= {'batch_size': 32, 'accumulate': 1, 'max_predictions': 20}
  return task.Phase(**{**fields, **changes})


def train(step, speed, data_wait=0.0):
  return {
    'kind': 'train',
    'step': step,
    'sequences_per_second': speed,
    'data_wait': data_wait,
  }


# The first row is slow, and so is the first after a restart.
ROWS = [
  {**RUN, 'jax': '0.10.2', 'libtpu': '0.0.42'},
  *(train(100, 1.0), train(200, 64.0), train(300, 60.0)),
  *({**RUN, 'step': 300, 'jax': '0.10.2', 'libtpu': '0.0.42'}, train(400, 2.0)),
  *(train(500, 64.0), {'kind': 'eval', 'step': 500}, train(600, 70.0)),
]


def estimated(**changes):
  facts = {'number': 0, 'batch_size': 32, 'seq_length': 128, 'accumulate': 1}
  facts |= {'model_flops_per_step': 8.0, 'step_seconds_model': 0.4}
  return {
    'topology': 'v5e:2x2',
    'slices': 1,
    'devices': 4,
    'jax': '0.10.2',
    'config': {},
    'phases': [facts],
    **changes,
  }


def test_speed_is_the_median_without_the_rows_of_first_steps():
  # 64, 60, 64, 70 sequences of 32 a second.
  assert measured_ratios.measure_step(ROWS, phase()) == pytest.approx(0.5)
  assert measured_ratios.measure_step(ROWS, phase(first=600)) is None
  assert measured_ratios.measure_step(ROWS[:4], phase()) is None


def test_a_run_that_waited_for_its_input_is_refused():
  rows = [train(n, 64.0, 0.12) for n in range(1, 6)]
  with pytest.raises(errors.UserError, match='waited for its input 12% of pha'):
    measured_ratios.measure_step(rows, phase())


def test_ratio_is_measured_by_what_the_model_says():
  found = measured_ratios.compare(estimated(), ROWS, [phase()], [8.0])
  assert found['ratios'] == [pytest.approx(1.25)]
  assert found['chip'] == 'v5e'
  assert found['topology'] == 'v5e:2x2'
  assert found['run'] == {'jax': '0.10.2', 'libtpu': '0.0.42'}
  assert found['phases'] == [
    {'number': 0, 'seconds': pytest.approx(0.5), 'model_seconds': 0.4}
  ]


@pytest.mark.parametrize(
  'other',
  [
    {'devices': 8},
    {'device_kind': 'TPU v4'},
    {'jax': '0.9.0'},
    {'libtpu': '0.0.41'},
    {'changed': True},
  ],
)
def test_rows_of_other_devices_or_versions_or_configs_are_left_out(other):
  # A faster machine trained first, then this one, interrupted in between.
  versions, rows = {'jax': '0.10.2', 'libtpu': '0.0.42'}, ROWS
  if other == {'changed': True}:
    rows, other = [ROWS[0] | other, *ROWS[1:]], {}
  first = [{**RUN, **versions, **other}]
  first += [train(n, 640.0) for n in range(10, 90, 10)]
  found = measured_ratios.compare(estimated(), first + rows, [phase()], [8.0])
  assert found['ratios'] == [pytest.approx(1.25)]
  # Where only they are enough rows, nothing is measured.
  with pytest.raises(errors.UserError, match='no phase has an estimate'):
    measured_ratios.compare(estimated(), first + rows[:3], [phase()], [8.0])


@pytest.mark.parametrize(
  'run, changes, words',
  [
    ({'device_kind': 'TPU v4'}, {}, '4 devices of TPU v4, the estimate is for'),
    ({'devices': 8}, {}, 'had 8 devices'),
    ({'device_kind': None}, {}, 'does not say which devices'),
    ({'device_kind': 'cpu'}, {}, '4 devices of cpu'),
    ({}, {'batch_size': 64}, 'has batch_size 32, the estimate 64'),
    ({}, {'model_flops_per_step': 9.0}, 'model FLOPs 8.0, the estimate 9.0'),
    ({}, {'number': 1}, 'no phase has an estimate'),
  ],
)
def test_another_run_than_estimated_is_refused(run, changes, words):
  (facts,) = estimated()['phases']
  other = estimated(phases=[{**facts, **changes}])
  rows = [row | run if row['kind'] == 'run' else row for row in ROWS]
  with pytest.raises(errors.UserError, match=words):
    measured_ratios.compare(other, rows, [phase()], [8.0])


def test_the_last_run_of_each_chip_is_kept(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'deep'))
  entry = {'ratios': [1.2], 'date': '2026-11-22', 'topology': 'v5e:2x2'}
  measured_ratios.store({'chip': 'v5e', **entry})
  measured_ratios.store({'chip': 'v4', **entry, 'topology': 'v4:2x2x1'})
  measured_ratios.store({'chip': 'v5e', **entry, 'ratios': [1.3]})
  assert measured_ratios.read('v5e') == {**entry, 'ratios': [1.3]}
  assert measured_ratios.read('v4')['ratios'] == [1.2]
  assert measured_ratios.read('v6e') is None
  assert os.listdir(tmp_path / 'deep' / 'bert_jax') == ['calibration.json']
  (tmp_path / 'file').write_text('')
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'file'))
  with pytest.raises(errors.UserError, match='file.*then calibrate again'):
    measured_ratios.store(entry | {'chip': 'v5e'})


@pytest.mark.parametrize(
  'text',
  [
    *('{', '[]', '{"v5e": 3}', '{"v5e": {"date": 1, "topology": 2}}'),
    '{"v5e": {"date": 1, "topology": 2, "ratios": [1, -1]}}',
  ],
)
def test_a_file_of_something_else_is_refused(tmp_path, monkeypatch, text):
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path))
  assert measured_ratios.read('v5e') is None  # nothing was measured
  path = tmp_path / 'bert_jax' / 'calibration.json'
  path.parent.mkdir()
  path.write_text(text)
  with pytest.raises(errors.UserError, match='delete the file'):
    measured_ratios.read('v5e')


def test_a_phase_that_trained_with_another_attention_is_refused():
  (facts,) = estimated()['phases']
  facts |= {'compute': {'attention': 'fused'}}
  compiled = estimated(phases=[facts | {'compiled_layers': [12]}])
  line = 'heads flat, remat none'

  def compare(**phases):
    rows = [ROWS[0], {'kind': 'compute', 'step': 0, **phases}, *ROWS[1:]]
    return measured_ratios.compare(compiled, rows, [phase()], [8.0])

  ok = compare(
    **{'0': f'attention fused, {line}', '1': f'attention xla, {line}'}
  )
  assert ok['ratios'] == compare()['ratios']
  words = 'phase 0 of the run has attention xla, the estimate attention fused;'
  with pytest.raises(errors.UserError, match=words):
    compare(**{'0': f'attention xla, {line}'})
  # What is estimated for a GPU depends on its products alone.
  compiled = estimated(phases=[facts])
  assert compare(**{'0': f'attention xla, {line}'}) == ok


def test_the_command_keeps_a_ratio(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'home'))
  c = config.pretraining('tiny')
  work = pretrain.make_objective(c).flops(task.list_phases(c)[0])
  (facts,) = estimated()['phases']
  facts |= {
    'model_flops_per_step': work,
    'batch_size': c.phases.batch_size[0],
    'seq_length': c.phases.seq_length[0],
  }
  (tmp_path / 'config.json').write_text(config.to_json(c))
  rows = ''.join(json.dumps(row) + '\n' for row in ROWS)
  (tmp_path / 'metrics.jsonl').write_text(rows)
  path = tmp_path / 'estimate.json'
  path.write_text(json.dumps(estimated(phases=[facts], config={'rng': c.rng})))
  flags = f'--workdir={tmp_path}', f'--estimate={path}'
  commands.run(calibrate, *flags)
  out = capsys.readouterr().out
  assert 'phase 0: ' in out and 'kept for v5e in' in out
  kept = tmp_path / 'home' / 'bert_jax' / 'calibration.json'
  assert json.loads(kept.read_text())['v5e']['topology'] == 'v5e:2x2'
  with pytest.raises(errors.UserError, match='a path is empty'):
    commands.run(calibrate, '--workdir=', flags[1])
  path.write_text(
    json.dumps(estimated(phases=[facts], config={'rng': 'other'}))
  )
  words = 'the run has rng=threefry, the estimate other'
  with pytest.raises(errors.UserError, match=words):
    commands.run(calibrate, *flags)
  path.write_text('{}')
  with pytest.raises(errors.UserError, match='is not of this preflight'):
    commands.run(calibrate, *flags)
