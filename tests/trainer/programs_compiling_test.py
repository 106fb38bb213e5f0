"""Tests of compiling a run's programs."""

import jax
import pytest

from bert_jax import errors
from bert_jax.ops import fused_attention
from bert_jax.parallel import device_mesh
from bert_jax.trainer import programs, task, tuning
from tests import training
from tests.trainer.shortage_test import HBM


def compile_run(c):
  """Returns (results by phase, lines that were said), without a start."""
  said, mesh, phases = [], device_mesh.make_mesh(), task.list_phases(c)
  found = programs.compile_run(
    c, training.make_objective(c), mesh, [], phases, said.append
  )
  numbered = {phase and phase.number: x for phase, x in found.items()}
  return numbered, said


@pytest.fixture
def failing_kernel(monkeypatch):
  """Has `auto` choose kernels, and the compiler refuse them."""

  def fail(*args, **kwargs):
    raise NotImplementedError('no such kernel.\nMore of it')

  monkeypatch.setattr(tuning, '_find_problem', lambda *args: None)
  monkeypatch.setattr(fused_attention, 'attend', fail)


def test_a_kernel_that_is_refused_gives_way_loudly(failing_kernel):
  found, said = compile_run(training.small_config())
  assert found[0].how.attention == 'xla'
  assert programs.get_executables(found[0].outcomes).keys() == {
    programs.TRAIN,
    programs.EVALUATE,
  }
  (warning,) = (line for line in said if 'WARNING' in line)
  assert 'length 6 (training step: no such kernel)' in warning


def test_a_program_that_phases_share_is_compiled_once():
  c = training.small_config(steps=(3, 2, 1), phases__accumulate=(1, 1, 2))
  found, _ = compile_run(c)
  first, second, third = (
    programs.get_executables(found[i].outcomes) for i in range(3)
  )
  assert first == second and not {*first.values()} & {*third.values()}


@pytest.mark.parametrize(
  'error, raised, words',
  [
    (
      NotImplementedError('no such kernel.\nMore of it'),
      errors.UserError,
      '^the training step of phase 0 at length 6 is refused .*: no such kernel; '
      'try compute.attention=auto .*compute.attention=xla',
    ),
    (
      jax.errors.JaxRuntimeError(HBM),
      errors.UserError,
      '^the training step of phase 0 at length 6 does not fit: it needs 20.50 '
      'GiB of the 15.75 GiB of a device; raise phases.accumulate, set compute.remat=layer',
    ),
    (TypeError('ours'), TypeError, '^ours$'),  # a bug keeps its traceback
  ],
  ids=['refused', 'too large', 'bug'],
)
def test_no_plain_path_is_taken_where_it_would_not_help(
  monkeypatch, error, raised, words
):
  def fail(program):
    raise error

  monkeypatch.setattr(tuning, '_find_problem', lambda *args: None)
  monkeypatch.setattr(programs.Program, 'lower', fail)
  asked = 'auto' if HBM in str(error) else 'fused'
  found, said = compile_run(training.small_config(compute__attention=asked))
  assert found[0].how.attention == 'fused'
  assert not any('WARNING' in line for line in said)
  with pytest.raises(raised, match=words):
    programs.get_executables(found[0].outcomes)


@pytest.mark.parametrize(
  'title',
  [
    'the evaluation of phase 1 at length 6',
    'the fingerprint',  # of each checkpoint
  ],
)
def test_what_would_fail_later_is_known_before_the_first_step(
  tmp_path, monkeypatch, title
):
  original = programs.Program.lower

  def fail(program):
    if title == f'the {program.title}':
      raise jax.errors.JaxRuntimeError('INTERNAL: broken')
    return original(program)

  monkeypatch.setattr(programs.Program, 'lower', fail)
  with pytest.raises(errors.UserError, match=f'{title} is refused'):
    training.train(training.small_config(steps=(3, 3)), tmp_path)
  assert not training.rows_of(tmp_path, 'train')
