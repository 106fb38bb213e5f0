"""The programs of a run: they are compiled, nothing else is, and all lower."""

import functools
import sys
import types

import jax
import jax.numpy as jnp
import pytest

from bert_jax import errors
from bert_jax.finetuning import batches
from bert_jax.hardware import chips
from bert_jax.ops import recomputed_attention
from bert_jax.parallel import device_mesh, distributed
from bert_jax.trainer import programs, task, tuning
from bert_jax.trainer.fit import fit
from tests import lowering, training
from tests.trainer.shortage_test import HBM


def tpu(name):
  kind = chips.get(name).kinds[0]
  return types.SimpleNamespace(platform='tpu', device_kind=kind)


FAST = 'dtype=bfloat16,rng=rbg'
TPU = tpu('v4')
GPU = types.SimpleNamespace(platform='gpu', device_kind='NVIDIA H200')


def slow(*rows):
  return (pytest.param(*row, marks=pytest.mark.slow) for row in rows)


def check_kernels(found, device):
  """The kernels of a v4 are those of every later chip."""
  call, size = {'tpu': ('tpu_custom_call', 128), 'gpu': ('flash_forward', 64)}[
    device.platform
  ]
  for (name, length), text in found.items():
    assert (call in text) == (length % size == 0)
    if call == 'flash_forward' in text:
      assert ('flash_backward' in text) == (name == programs.TRAIN)


def test_runs_that_differ_in_their_rates_share_a_compiled_update():
  mesh = device_mesh.make_mesh(devices=jax.devices()[:1])

  def lower(steps, **changes):
    c = training.small_config((steps,), **changes)
    [phase] = task.list_phases(c)
    listed = programs.list_phase(c, training.make_objective(c), mesh, phase)
    return listed[0].lower().as_text()

  one = lower(9)
  assert (
    lower(20, optimizer__learning_rate=1e-5, optimizer__warmup_steps=3) == one
  )
  assert lower(9, optimizer__weight_decay=0.5) != one


# Each width that a shipped config has; of table 6 the heads that are not among
# the others'. All heads of the GPU's kernels are lowered in tests/ops.
@pytest.mark.parametrize(
  'name, device',
  [
    *slow(('base', GPU), ('tiny', TPU), ('compact:medium', TPU)),
    *slow(('large', TPU)),
  ],
)
def test_training_and_evaluation_of_each_config_lower(name, device):
  c = lowering.make_config(name)
  found = lowering.lower(c, device, 4)
  assert len(found) == 2 * len(c.phases.steps)
  check_kernels(found, device)


@pytest.mark.parametrize(
  'name, device',
  [('swag', TPU), *slow(('squad', TPU), ('ner', TPU), ('squad', GPU))],
)
def test_training_and_evaluation_of_each_task_lower(name, device, monkeypatch):
  monkeypatch.setattr(batches, '_SHARES', (0.25,))  # two lengths for five
  c = lowering.make_config(name, 'size=tiny,num_layers=1,vocab_size=64')
  if device is GPU:
    c.model.dtype = 'bfloat16'  # what its kernels compute in
  found = lowering.lower(c, device, 4)
  [phase] = task.list_phases(c)
  lengths = batches.list_lengths(phase)
  assert len(lengths) == 2
  kinds = programs.TRAIN, programs.EVALUATE
  assert {*found} == {(kind, n) for kind in kinds for n in lengths}
  check_kernels(found, device)


@pytest.mark.parametrize('chip', ['v3', 'tpu7x'])
def test_training_and_evaluation_lower_for_each_chip(chip):
  found = lowering.lower(lowering.short(FAST), tpu(chip), 4)
  kernels = {'tpu_custom_call' in text for text in found.values()}
  assert kernels == {chip not in ('v2', 'v3')}


@pytest.mark.parametrize(
  'arguments',
  [
    FAST + ',mesh.model=2,sampled_words=1000',
    FAST + ',kind=ltr,nsp=false,accumulate=2',
    *slow(
      [FAST + ',pack=3'],
      [FAST + ',remat=layer,seq_length=100'],
      ['dtype=float32,pack=3,accumulate=2,mesh.model=2'],
      [FAST + ',mesh.model=4,num_heads=4,norm=pre,reduce_dtype=bfloat16'],
      [FAST + ',accumulate=2,clip_unit=micro_batch,remat=products,nsp=false'],
      [FAST + ',profile=google,attention_dropout=0,model.dropout=0'],
      [FAST + ',mesh.model=2,seq_length=512'],
      [FAST + ',seq_length=384'],
    ),
  ],
)
def test_every_way_to_compute_lowers_for_four_tpus(arguments):
  assert lowering.lower(lowering.short(arguments), tpu('v5e'), 4)


def test_two_slices_lower(monkeypatch):
  monkeypatch.setattr(device_mesh, 'count_slices', lambda mesh: 2)
  found = lowering.lower(lowering.short(FAST), tpu('v5e'), 4)
  text = found[programs.EVALUATE, 128]
  assert '[[0, 1], [2, 3]]' in text and '[[0, 2], [1, 3]]' in text


@pytest.mark.parametrize(
  'arguments, count',
  [
    ('dtype=bfloat16,rng=rbg,pack=3', 4),
    *slow(
      ('dtype=bfloat16,rng=rbg,seq_length=512,mesh.model=2', 4),
      ('rng=threefry,seq_length=512,pack=3,kind=ltr,nsp=false', 1),
      ('dtype=bfloat16,rng=rbg,seq_length=512,kind=rtl,nsp=false', 4),
      ('dtype=bfloat16,accumulate=2,remat=layer,attention=recompute', 4),
    ),
  ],
)
def test_every_way_to_compute_lowers_for_gpus(arguments, count):
  dropped = 'dropout=0.1,attention_dropout=0.1'  # tiny.py has none
  c = lowering.short(f'model.{dropped},{arguments}')
  found = lowering.lower(c, GPU, count)
  kernels = c.model.dtype == 'bfloat16' and c.mesh.model == 1
  if kernels and c.compute.attention == 'auto':
    check_kernels(found, GPU)
  text = found[programs.TRAIN, c.phases.seq_length[0]]
  assert ('rng_bit_generator' in text) == (c.rng == 'rbg')


@pytest.mark.parametrize('attention', ['xla', 'auto'])
def test_auto_makes_on_gpus_no_array_of_all_pairs_of_tokens(
  monkeypatch, attention
):
  monkeypatch.setattr(recomputed_attention, 'BLOCK', 1)
  c = lowering.short(f'seq_length=512,batch_size=4,attention={attention}')
  text = lowering.lower(c, GPU, 1)[programs.TRAIN, 512]
  assert ('<4x2x512x512x' in text) == (attention == 'xla')


def list_names(c):
  """Returns the names of the functions that the list of a run holds."""
  made, mesh = training.make_objective(c), device_mesh.make_mesh()
  listed = programs.list_start(c, made, mesh)
  for phase in task.list_phases(c):
    listed += programs.list_phase(c, made, mesh, phase)
  return sorted(f'jit({_name(p.jitted.__wrapped__)})' for p in listed)


def _name(function):
  while isinstance(function, functools.partial):
    function = function.func
  return function.__name__


def test_a_run_compiles_what_is_in_the_list_and_nothing_between_updates(
  tmp_path, monkeypatch
):
  c, counts = training.small_config(eval__every=2), []
  expected = list_names(c)
  jax.clear_caches()

  def look(own, whole):
    counts.append(len(compiled))
    return int(own.sum())

  monkeypatch.setattr(distributed, 'sum_global', look)
  # From a trained model, which is placed by a program of the list, too.
  made = training.make_task(c, start=lambda new: (new, {}))
  with training.noting_compilations() as compiled:
    fit(c, made, str(tmp_path))
  assert counts[0] > 0 and counts == 6 * counts[:1]
  # Functions of jax, such as the one that makes a key, are let through.
  assert sorted(x for x in compiled if x in expected) == expected
  modules = [m for n, m in sys.modules.items() if n.startswith('bert_jax')]
  own = {f'jit({name})' for module in modules for name in vars(module)}
  assert not ({*compiled} - {*expected}) & own


def test_programs_of_many_hosts_count_vote_and_gather(monkeypatch):
  c = training.small_config()
  made, mesh = training.make_objective(c), device_mesh.make_mesh()
  (phase,) = task.list_phases(c)

  def listed():
    start = programs.list_start(c, made, mesh)
    return {p.name for p in start + programs.list_phase(c, made, mesh, phase)}

  alone = listed()
  monkeypatch.setattr(programs, '_hosts', lambda mesh: 2)
  assert listed() - alone == {programs.COUNT, programs.VOTE, programs.GATHER}


def compile_run(c):
  """Returns (result of the first phase, lines that were said)."""
  said, mesh, phases = [], device_mesh.make_mesh(), task.list_phases(c)
  results = programs.compile_run(
    c, training.make_objective(c), mesh, [], phases, said.append
  )
  return results[phases[0]], said


@pytest.fixture
def lower(monkeypatch):
  """Has `auto` choose kernels; takes what lowering a program does instead."""
  monkeypatch.setattr(tuning, '_find_problem', lambda *args: None)
  return lambda do: monkeypatch.setattr(programs.Program, 'lower', do)


def test_a_kernel_that_is_refused_gives_way_loudly(lower):
  plain = jax.jit(lambda x: x).lower(1.0)
  tried = []

  def refuse(program):
    tried.append(program.name)
    if len(tried) <= 2:  # the first way
      raise NotImplementedError('no such kernel.\nMore of it')
    return plain

  lower(refuse)
  result, said = compile_run(training.small_config())
  assert result.how.attention == 'xla' and len(tried) == 4
  executables = programs.get_executables(result.outcomes)
  assert executables.keys() == {programs.TRAIN, programs.EVALUATE}
  (warning,) = (line for line in said if 'WARNING' in line)
  assert 'length 6 (training step: no such kernel)' in warning


def test_a_program_that_phases_share_is_compiled_once():
  def add(n):
    return jax.jit(lambda x: x + n)

  listed = [
    programs.Program('step', add(n), (jnp.zeros(3),), phase, 6)
    for phase, n in enumerate((1, 1, 2))
  ]
  outcomes = programs.compile_all(listed, 'cpu', print)
  first, second, third = (x.executable for x in outcomes)
  assert first is second and third is not first


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
  lower, error, raised, words
):
  def fail(program):
    raise error

  lower(fail)
  asked = 'auto' if HBM in str(error) else 'fused'
  result, said = compile_run(training.small_config(compute__attention=asked))
  assert result.how.attention == 'fused'
  assert not any('WARNING' in line for line in said)
  with pytest.raises(raised, match=words):
    programs.get_executables(result.outcomes)


@pytest.mark.parametrize(
  'title',
  [
    'the evaluation of phase 1 at length 6',
    'the fingerprint',  # of each checkpoint
  ],
)
def test_what_would_fail_later_is_known_before_the_first_step(
  tmp_path, lower, title
):
  def fail(program):
    if title == f'the {program.title}':
      raise jax.errors.JaxRuntimeError('INTERNAL: broken')
    return jax.jit(lambda x: x).lower(1.0)

  lower(fail)
  c = training.small_config((3, 3), compute__attention='xla')
  with pytest.raises(errors.UserError, match=f'{title} is refused'):
    fit(c, training.make_task(c), str(tmp_path))
  assert not training.rows_of(tmp_path, 'train')
