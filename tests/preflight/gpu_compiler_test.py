"""What is told of a run before its GPUs are rented."""

import json
import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding

from bert_jax import config, errors
from bert_jax.hardware import accelerators, chips
from bert_jax.ops import flash_attention
from bert_jax.preflight import __main__ as page
from bert_jax.preflight import examine, gpu_compiler
from bert_jax.runtime import machine
from bert_jax.trainer import programs, task

GPUS = [c for c in chips.CHIPS if c.capability]
needs_compiler = pytest.mark.skipif(
  not any(map(machine.is_installed, machine.CUDA_COMPILERS.values())),
  reason="needs 'bert_jax[gpu-compiler]'",
)

knows_the_end = pytest.mark.filterwarnings(
  'ignore:The Pallas Triton backend is deprecated:DeprecationWarning'
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
  """Keeps the settings of this machine out of the estimates."""
  monkeypatch.setenv('XLA_FLAGS', os.environ.get('XLA_FLAGS', ''))
  for name in gpu_compiler.FRACTIONS:
    monkeypatch.delenv(name, raising=False)


def examine_run(name, size, arguments):
  """Returns (report, topology) of a run with one layer."""
  c = config.apply_arguments(config.pretraining(size), 'num_layers=1')
  config.apply_arguments(c, arguments)
  where, phases = accelerators.parse(name), task.list_phases(c)
  listed, facts, _ = examine.examine(c, where, phases, False, lambda line: None)
  return examine.make_report(where, None, listed, facts), where


@needs_compiler
@knows_the_end
@pytest.mark.slow
@pytest.mark.parametrize(
  'name, size, arguments',
  [
    ('a100-40gb:1', 'base', 'data.pack=3'),
    ('h100:1', 'large', ''),
    ('h200:1', 'large', 'data.pack=3'),
    ('rtx4090:1', 'base', ''),
  ],
)
def test_the_papers_models_are_compiled_with_kernels(name, size, arguments):
  """At lengths of 128 and 512."""
  given = f'dtype=bfloat16,rng=rbg,batch_size=32,{arguments}'.rstrip(',')
  report, _ = examine_run(name, size, given)
  assert all(p['ok'] for p in report['programs']), report['programs']
  found = [
    (x['seq_length'], x['compute']['attention']) for x in report['phases']
  ]
  assert found == [(128, 'flash'), (512, 'flash')]


@needs_compiler
@knows_the_end
@pytest.mark.slow
def test_every_program_of_a_run_is_compiled():
  one = 'seq_length=128,max_predictions=20,steps=9,batch_size=64'
  report, where = examine_run('a100-40gb:4', 'mini', one)
  assert all(p['ok'] for p in report['programs'])
  assert {p['name'] for p in report['programs']} >= {
    programs.TRAIN,
    programs.EVALUATE,
    programs.INITIALISE,
  }
  facts, _ = report['phases']  # of a length
  assert facts['needed_bytes'] == sum(facts['memory'].values())
  assert facts['usable_bytes'] == 30 * 2**30
  memory = facts['memory']  # the optimizer's is the device's share
  assert memory['optimizer'] == pytest.approx(2 * memory['parameters'], rel=0.1)
  text = '\n'.join(page.render(report, where))
  assert 'of the run compile' in text and 'FITS' in text
  assert 'of 30.00 GiB per device (compiled)' in text
  assert 'a roofline, not a measurement' in text
  lines = page.render(report | {'slices': 2}, where)
  assert 'Between hosts, links are taken' in '\n'.join(lines)


@needs_compiler
@knows_the_end
@pytest.mark.slow
@pytest.mark.parametrize('name', ['a100-40gb', 'h200', 'rtx4090', 'rtx5090'])
def test_attention_fits_the_shared_memory_of_a_gpu(name):
  """That of heads of 128, which need most, is 99 KiB on the cheaper GPUs."""
  (device,) = gpu_compiler.describe_devices(accelerators.parse(f'{name}:1'))
  placed, shape = SingleDeviceSharding(device), (2, 256, 3, 2, 128)
  qkv = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=placed)
  key = jax.ShapeDtypeStruct((4,), jnp.uint32, sharding=placed)

  def total(qkv, key):
    mixed = flash_attention.attend(
      *(qkv, jnp.zeros(shape[2:], qkv.dtype), jnp.ones(shape[:2], jnp.int32)),
      jax.random.wrap_key_data(key, impl='rbg'),
      rate=0.1,
      mask_value=-1e4,
    )
    return jnp.sum(mixed.astype(jnp.float32))

  text = jax.jit(jax.grad(total)).lower(qkv, key).compile().as_text()
  assert text.count('triton') >= 3  # what is kept, forward and backward


@pytest.mark.parametrize('chip', GPUS, ids=lambda chip: chip.name)
def test_a_gpu_is_described_to_the_compiler(chip):
  found = gpu_compiler._describe(chip, 13)
  assert found.count('{') == found.count('}') == 4
  assert f'core_count: {chip.multiprocessors}\n' in found
  assert f'device_description_str: "{chip.kinds[0]}"' in found
  # The clock follows from multiprocessors and peak, which a wrong row would show.
  clock = float(found.partition('clock_rate_ghz: ')[2].partition('\n')[0])
  assert 1.3 < clock < 2.6


def test_the_flags_of_the_user_stay(monkeypatch):
  where = accelerators.parse('h200:1')
  monkeypatch.setattr(machine, 'is_installed', lambda name: 'cuda13' in name)
  given = []

  def describe(**options):
    given.append(json.dumps(options))
    raise NotImplementedError

  monkeypatch.setattr(gpu_compiler.topologies, 'get_topology_desc', describe)
  monkeypatch.setenv('XLA_FLAGS', '--xla_gpu_autotune_level=2')
  with pytest.raises(NotImplementedError):
    gpu_compiler.describe_devices(where)
  flags = os.environ['XLA_FLAGS']
  assert flags.split() == [
    '--xla_gpu_autotune_level=2',
    '--xla_gpu_enable_triton_gemm=false',
  ]
  assert 'runtime_version { major: 13 }' in given[0]


def test_a_missing_compiler_is_named(monkeypatch):
  monkeypatch.setattr(machine, 'is_installed', lambda name: False)
  with pytest.raises(errors.UserError, match=r"'bert_jax\[gpu-compiler\]'"):
    gpu_compiler.describe_devices(accelerators.parse('h200:1'))


@pytest.mark.parametrize('name', gpu_compiler.FRACTIONS)
def test_the_share_of_a_gpu_is_that_of_the_variable(name, monkeypatch):
  assert gpu_compiler.get_usable_memory(40) == 30
  monkeypatch.setenv(name, '0.9')
  assert gpu_compiler.get_usable_memory(40) == 36
