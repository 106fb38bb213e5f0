"""What is told of a run before its accelerators are rented."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import types

import jax
import pytest

from bert_jax import config, errors
from bert_jax.hardware import accelerators, chips
from bert_jax.parallel import device_mesh
from bert_jax.preflight import __main__ as preflight
from bert_jax.preflight import compile_step, examine
from bert_jax.pretraining import pretrain
from bert_jax.trainer import programs, task
from tests import commands, processes

needs_compiler = pytest.mark.skipif(
  importlib.util.find_spec('libtpu') is None, reason='needs libtpu'
)


def run(*more):
  """Returns (exit code, stdout, last line of stderr) of the command."""
  command = [sys.executable, '-m', 'bert_jax.preflight', *more]
  env = {**os.environ, 'JAX_DISABLE_MOST_OPTIMIZATIONS': 'false'}
  done = subprocess.run(
    command, cwd=processes.ROOT, env=env, capture_output=True, text=True
  )
  return done.returncode, done.stdout, (done.stderr.splitlines() or [''])[-1]


def facts(**changes):
  """Returns what `examine` finds of a phase that fits."""
  return {
    'number': 0,
    'steps': 3600,
    'batch_size': 32,
    'seq_length': 128,
    'accumulate': 1,
    'predictions': 0,
    'model_flops_per_step': 2e12,
    'layers': 4,
    'compiled_layers': [4],
    'fits': True,
    'usable_bytes': 16 * 2**30,
    'needed_bytes': 6 * 2**30,
    'memory': {'parameters': 2**30, 'temporary': 5 * 2**30},
    'largest_batch_estimate': 96,
    'accumulate_that_fits_estimate': 1,
    'step_seconds_estimate': [0.5, 1.0],
    'step_seconds_parts': {'computation at peak': 0.3, 'collectives': 0.25},
    'step_seconds_range': '30% to 60% of the peak',
    'utilisation_estimate': [0.25, 0.5],
    **changes,
  }


def reported(found, price=None, programs=(), slices=1):
  """Returns the report of a phase on v5e:4x4, and that slice."""
  where = accelerators.parse('v5e:4x4', slices)
  report = examine.make_report(where, price, list(programs), [found])
  return json.loads(json.dumps(report)), where


def page(found, **more):
  return '\n'.join(preflight.render(*reported(found, **more)))


FITS = [
  *('FITS, 10.00 GiB to spare: 6.00 of 16.00 GiB', 'per device (compiled)'),
  'at most about 96 sequences',
  '500 ms to 1 s per step (estimated):\n',
  'computation at peak 300 ms, collectives 250 ms\n',
  'Range: 30% to 60% of the peak.',
  'Links: 2 of 50 GB/s each way for a chip.',
  '32 to 64 sequences/s, 25% to 50% of the peak',
  # 3,600 steps of 0.5 to 1 s on 16 chips.
  *('0.5 to 1 hours, 8 to 16 chip-hours', '$9.6 to 19.2 at $1.20 per chip'),
  'per chip and hour (list of 2025-',
]
TOO_MUCH = ['DOES NOT FIT, 4.00 GiB too much: 20.00 of 16.00 GiB']
HELPS = ['phases.accumulate=4 should make it fit (estimated)']
REFUSED = ['memory      not known: the compiler refuses', 'run: not estimated']
NO_TIME = ['time        not known: the step did not comp', 'run: not estimated']


@pytest.mark.parametrize(
  'changes, more, words',
  [
    ({}, {}, FITS),
    ({}, {'price': 2.0}, ['$16 to 32 at $2.00 per chip and hour (given)']),
    (
      {},
      {'slices': 2},
      ['each way for a chip, 3.1 GB/s to other slices.', '2 slices of v5e'],
    ),
    (
      {'accumulate': 2, 'predictions': 20},
      {},
      ['32 sequences of 128 tokens, up to 20 predicted in 2 micro-batches\n'],
    ),
    ({'fits': False, 'needed_bytes': 20 * 2**30}, {}, TOO_MUCH),
    ({'fits': False, 'accumulate_that_fits_estimate': 4}, {}, HELPS),
    ({'compiled_layers': [2, 4]}, {}, ['for 4 layers from 2 and 4)']),
    (
      {'steps': None},
      {},
      ['phase 0: batches of 32', 'give --config.phases.steps=N, 2 or more'],
    ),
    ({'fits': None, 'step_seconds_estimate': None}, {}, REFUSED),
    ({'fits': False, 'step_seconds_estimate': None}, {}, NO_TIME),
    (
      {'fits': False, 'accumulate_that_fits_estimate': None},
      {},
      ['no phases.accumulate makes it fit'],
    ),
  ],
)
def test_page_says_what_fits_and_what_it_costs(changes, more, words):
  found = facts(**changes)
  if found['step_seconds_estimate'] is None:
    del found['step_seconds_estimate']
  text = page(found, **more)
  for part in words:
    assert part in text
  assert ('slices' in text) == ('slices' in more)
  assert ('micro-batches' in text) == ('accumulate' in changes)


def test_memory_lies_on_a_line_over_the_layers():
  two = compile_step.Memory(1, 2, 5, 100, 0)
  four = compile_step.Memory(3, 6, 5, 60, 0)
  found = examine._extrapolate(two, four, 12)
  assert found == compile_step.Memory(11, 22, 5, 0, 0)
  # A layer that sees all and two that do not, and twice as many.
  c = config.apply_arguments(config.pretraining('base'), 'body=modern')
  few = examine._count_few(config.model_config(c))
  assert few == 3
  found = examine._extrapolate(two, four, 12, few)
  assert found == compile_step.Memory(7, 14, 5, 0, 0)


def test_the_time_of_a_step_is_that_of_its_config_and_slice():
  c = config.pretraining('base')
  c.model.dtype = 'bfloat16'
  where = accelerators.parse('v5e:2x2')
  memory = compile_step.Memory(2e8, 4e8, 0, 0, 0)

  mesh = types.SimpleNamespace(shape={'data': 4, 'model': 1})
  objective, phase = pretrain.make_objective(c), task.list_phases(c)[0]
  # Gradients in float32, weights in bfloat16.
  found = examine.estimate_time(objective, where, mesh, phase, memory, 6e8)
  # 70 GFLOPs a row; 4 chips of 197 TFLOP/s.
  parts = found['step_seconds_parts']
  assert parts['computation at peak'] == pytest.approx(
    256 * 70e9 / 788e12, 0.03
  )
  # 1.4 GB of memory at 819 GB/s; 3/4 of 600 MB on 2 links of 50 GB/s.
  assert parts['optimizer'] == pytest.approx(1.4e9 / 819e9)
  assert parts['collectives'] == pytest.approx(0.75 * 6e8 / 100e9)
  low, high = found['step_seconds_estimate']
  assert 0.030 < low < 0.040 and 0.060 < high < 0.070


def test_page_says_which_programs_cannot_be_compiled_and_why():
  good = {'name': 'training step', 'phase': 0, 'ok': True, 'reason': None}
  bad = good | {'name': 'evaluation', 'ok': False, 'reason': 'it is refused'}
  start = {'name': 'initial state', 'phase': None, 'ok': True, 'reason': None}
  found = page(facts(), programs=[start, good, bad])
  assert 'programs: 1 of 3 CANNOT BE COMPILED' in found
  assert '  evaluation of phase 0: it is refused' in found
  assert 'all 2 of the run compile' in page(facts(), programs=[start, good])


def test_reasons_name_the_depth_where_several_were_compiled():
  error = jax.errors.JaxRuntimeError('INTERNAL: x')
  step = programs.Program(programs.TRAIN, None, (), phase=0, length=128)

  def run(problem):
    outcome = programs.Outcome(step, None if problem else 'exe', problem)
    return {0: programs.Result(None, [outcome])}

  (found,) = examine._verdicts([run(None), run(error)], (2, 4))
  assert (found['name'], found['phase']) == ('training step', 0)
  words = 'with 4 layers at length 128 it is refused by the compil'
  assert not found['ok'] and found['reason'].startswith(words)
  (found,) = examine._verdicts([run(None)], (12,))
  assert found['ok'] and found['reason'] is None


# That is how ml_collections loads the file of --config.
@pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')
@pytest.mark.parametrize(
  'fits, ok, code', [(True, True, 0), (False, True, 2), (True, False, 2)]
)
def test_the_exit_code_says_whether_the_run_can_work(
  monkeypatch, fits, ok, code
):
  program = {'name': 'evaluation', 'phase': 0, 'ok': ok, 'reason': 'x'}
  found = [program], [facts(fits=fits)], {}
  monkeypatch.setattr(examine, 'examine', lambda *given: found)
  flags = '--config=configs/compact.py:mini', '--topology=v5e:4x4'
  assert commands.run(preflight, *flags) == code


def test_a_phase_can_be_chosen():
  phases = task.list_phases(config.pretraining('base'))
  assert preflight.choose_phases(phases, None, None) == phases
  assert preflight.choose_phases(phases, 1, 'x') == phases[1:]
  with pytest.raises(errors.UserError, match='--phase=2 is not one of 0 to 1'):
    preflight.choose_phases(phases, 2, None)
  with pytest.raises(errors.UserError, match='--hlo writes one program'):
    preflight.choose_phases(phases, None, 'x')


@pytest.mark.slow
@needs_compiler
def test_every_program_is_compiled_for_absent_chips(tmp_path):
  code, out, _ = run(
    '--config=configs/tiny.py:smoke,rng=rbg,seq_length=128,hidden_size=128',
    *('--topology=v5litepod-4', '--phase=0', f'--hlo={tmp_path}/a/x.hlo'),
    f'--json={tmp_path}/b/x.json',
  )
  assert code == 0
  assert 'FITS' in out and 'v5e:2x2: 4 chips' in out
  report = json.loads((tmp_path / 'b' / 'x.json').read_text())
  assert {p['name'] for p in report['programs'] if p['ok']} == {
    *(programs.INITIALISE, programs.PLACE, programs.PLACE_KEY),
    programs.RATES,
    *(programs.FINGERPRINT, programs.TRAIN, programs.EVALUATE),
  }
  found = report['phases'][0]
  assert found['compute']['attention'] == 'fused'
  assert found['usable_bytes'] == 15.75 * 2**30
  low, high = found['step_seconds_estimate']
  assert 0 < low < high and found['step_seconds_parts']['collectives'] > 0
  # Adam's two moments lie where their parameters do.
  memory = found['memory']
  assert memory['optimizer'] == pytest.approx(
    2 * memory['parameters'], rel=0.01
  )
  assert 'num_partitions=4' in (tmp_path / 'a' / 'x.hlo').read_text()


# 100 bytes/s of memory, 4 links of 5 bytes/s each way, 2 bytes/s between slices.
CHIP = chips.Chip(
  *('v5e', ('X',), 1000.0, 100.0, 40.0), links=4, network_bandwidth=2.0
)
PAIR = dataclasses.replace(CHIP, name='v3', devices=2)
GPU = dataclasses.replace(chips.get('h100'), link_bandwidth=20.0)


def slices_of(chip, *bounds, slices=1):
  return accelerators.Topology('x', chip, bounds, slices, 1, {})


def test_a_step_is_between_a_share_of_the_peak_with_and_without_overlap():
  others = {'optimizer': 1.0, 'collectives': 3.0}
  found = examine.estimate_step(800.0, 200.0, (0.5, 0.8), 'why', others)
  # 4 s at the peak: 5 s beside the collectives, or 8 s before them.
  assert found == {
    'step_seconds_estimate': [5 + 1, 8 + 1 + 3],
    'step_seconds_parts': {'computation at peak': 4.0, **others},
    'step_seconds_range': 'why',
    'utilisation_estimate': [4 / 12, 4 / 6],
  }
  others['collectives'] = 7.0  # more than the computation hides
  found = examine.estimate_step(800.0, 200.0, (0.5, 0.8), 'why', others)
  assert found['step_seconds_estimate'] == [7 + 1, 8 + 1 + 7]


def test_a_tpu_reaches_a_part_of_what_products_of_that_size_reach():
  chip = chips.get('tpu7x')
  # 2048 x 1024 x 4096 take as many FLOPs as a cube of 2048: 679 of 1,153.5.
  shares, why = examine.list_shares(chip, 2048, 1024, 4096)
  alone = 679.3 / 1153.5
  assert shares == pytest.approx((0.33 * alone, 0.7 * alone))
  assert why == (
    '19% to 41% of the peak, 0.33 to 0.7 x the 59% that products of this size '
    'reach by measurements on this chip'
  )
  _, why = examine.list_shares(chips.get('v5e'), 99, 99, 99)
  assert ', 0.5 to 0.85 x' in why and why.endswith('on TPU7x')
  shares, why = examine.list_shares(GPU, 512, 128, 512)
  assert (shares, why) == ((0.25, 0.65), '25% to 65% of the peak')


def test_the_update_moves_state_gradient_and_parameters():
  # State in and out, gradient in: 2 x 30 + 10 bytes at 100 or 50 bytes/s.
  assert examine.time_update(10, 30, CHIP) == pytest.approx(0.7)
  assert examine.time_update(10, 30, PAIR) == pytest.approx(1.4)


@pytest.mark.parametrize(
  'where, seconds',
  [
    (slices_of(CHIP, 1, 1), 0.0),
    # Two neighbours in a 2x2, no ring: 3/4 of 80 bytes at 2 x 5 bytes/s.
    (slices_of(CHIP, 2, 2), 6.0),
    (slices_of(CHIP, 1, 2), 8.0),
    # A ring of 16 has both links of its axis: 255/256 of 80 bytes at 20.
    (slices_of(CHIP, 16, 16), 4.0 * 255 / 256),
    # Devices of a chip share its links: v3 has no ring, either.
    (slices_of(PAIR, 2, 2), 6.0),
    # Of each chip's 20 bytes, half goes to the other slice at 2 bytes/s.
    (slices_of(CHIP, 2, 2, slices=2), 6.0 + 5.0),
    # GPUs: 10 bytes/s each way, hosts linked as one.
    (slices_of(GPU, 1), 0.0),
    (slices_of(GPU, 4), 6.0),
    (slices_of(GPU, 2, slices=2), 6.0),
  ],
)
def test_collectives_have_the_links_of_a_chip(where, seconds):
  assert examine.time_collectives(80, where) == pytest.approx(seconds)


def test_run_adds_the_phases_and_counts_chips_and_dollars():
  found = examine.estimate_run([(3600, (1.0, 2.0)), (900, (4.0, 5.0))], 16, 1.5)
  assert found == {
    'hours': (2.0, 3.25),
    'chip_hours': (32.0, 52.0),
    'dollars': (48.0, 78.0),
  }
  unknown = examine.estimate_run([(1, (1.0, 2.0))], 16, None)
  assert unknown['dollars'] is None


@pytest.mark.parametrize(
  'needed, fixed, largest, accumulate',
  [
    # 4 devices of 8 rows: 30 + 8 x 5 = 70 of 100 bytes.
    (70, 30, 14 * 4, 1),
    # 30 + 8 x 20 = 190 of 100; in 4 parts 30 + 20 + 2 x 20.
    (190, 30, 3 * 4, 4),
    # A batch smaller than the gradients tells nothing of larger ones.
    (25, 30, None, 1),
    # No accumulation helps a model that is too large.
    (190, 110, 0, None),
  ],
)
def test_batches_that_fit_follow_the_memory(needed, fixed, largest, accumulate):
  phase = task.Phase(
    *(0, 0, 9, 128, 32),
    accumulate=1,
    max_predictions=20,
    mask_rate=0.15,
    rope_theta=1e4,
  )
  found = examine.estimate_batch(needed, fixed, 100, 20, phase, 4)
  assert found == {
    'largest_batch_estimate': largest,
    'accumulate_that_fits_estimate': accumulate,
  }


def test_gradients_are_not_in_shares_until_they_are_added_up():
  init = pretrain.make_objective(config.pretraining('tiny')).init
  found = [
    compile_step.count_gradient_bytes(
      init, device_mesh.make_mesh(model, jax.devices()[:n])
    )
    for n, model in ((1, 1), (4, 1), (2, 2))
  ]
  # 30720 rows, 2 layers of 198,272, positions, heads and the rest: 4,459,010.
  assert found[0] == found[1] == 4 * 4_459_010
  assert found[0] / 2 < found[2] < 0.55 * found[0]
