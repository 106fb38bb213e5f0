"""Tests of what is said where a device has too little memory."""

import types

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.trainer import shortage, task

GIB = 2**30
PHASE = task.Phase(1, 0, 9, 512, 32, 2, 76)

HBM = (
  'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of '
  '15.75G hbm. Exceeded hbm capacity by 4.75G.'
)


@pytest.mark.parametrize(
  'available, expected',
  [
    (13 * GIB, 4),  # 1 + 12: half of the 24
    (12 * GIB, 8),
    (7 * GIB, 8),
    (4 * GIB, 16),
    (3 * GIB, None),
  ],
)
def test_the_least_number_of_micro_batches_that_fits(available, expected):
  """16 rows per device, 8 in a micro-batch, which need 24 GiB."""
  found = shortage.find_accumulate(PHASE, 2, GIB, 24 * GIB, available)
  assert found == expected


def make_program(arguments, temporary, output=0, alias=0):
  """Returns a program that needs so many bytes."""
  analysis = types.SimpleNamespace(
    argument_size_in_bytes=arguments,
    output_size_in_bytes=output,
    alias_size_in_bytes=alias,
    temp_size_in_bytes=temporary,
  )
  return types.SimpleNamespace(memory_analysis=lambda: analysis)


def test_a_device_holds_its_share():
  mesh = device_mesh.make_mesh()  # 4 devices
  x = jax.ShapeDtypeStruct(
    (8, 5), jnp.float32, sharding=NamedSharding(mesh, P('data'))
  )
  y = jax.ShapeDtypeStruct(
    (3,), jnp.bfloat16, sharding=NamedSharding(mesh, P())
  )
  assert shortage.count_bytes({'x': x, 'y': y}) == 2 * 5 * 4 + 3 * 2


@pytest.mark.parametrize('left', ['step and evaluation', 'evaluation'])
def test_the_optimizer_stays_while_the_model_is_evaluated(monkeypatch, left):
  made = {
    'step': make_program(6 * GIB, 2 * GIB),
    'evaluation': make_program(2 * GIB, 4 * GIB),
  }
  made = {name: made[name] for name in left.split(' and ')}
  mesh = types.SimpleNamespace(shape={'data': 1})
  where = SingleDeviceSharding(jax.devices()[0])
  state = [jax.ShapeDtypeStruct((6, GIB), jnp.uint8, sharding=where)]
  monkeypatch.setattr(shortage, '_get_limit', lambda mesh: 10 * GIB)
  shortage.check('none', PHASE, made, state, mesh)
  monkeypatch.setattr(shortage, '_get_limit', lambda mesh: 9 * GIB)
  with pytest.raises(errors.UserError, match='the evaluation .* needs 10.00 G'):
    shortage.check('none', PHASE, made, state, mesh)


def test_needed_memory_is_that_of_arguments_results_and_temporaries():
  program = make_program(100, 1000, output=90, alias=80)
  assert shortage.count_needed(program) == 1110
  program = types.SimpleNamespace(memory_analysis=lambda: None)
  assert shortage.count_needed(program) is None


@pytest.mark.parametrize(
  'text, needed, available, with_arguments',
  [
    (HBM, 20.5 * 2**30, 15.75 * 2**30, True),
    (
      'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory '
      'required for HLO temporaries (3.00T) exceeds available HBM (31.25G).',
      *(3 * 2**40, 31.25 * 2**30, False),
    ),
  ],
)
def test_what_memory_is_missing_is_read_from_the_error(
  text, needed, available, with_arguments
):
  assert shortage.parse(ValueError(text)) == shortage.Shortage(
    needed, available, with_arguments
  )


def test_other_errors_are_not_taken_for_a_lack_of_memory():
  vmem = 'RESOURCE_EXHAUSTED: CompileTimeScopedVmemOom: 17.4M of 16.00M vmem'
  for text in ('INTERNAL: x', vmem):
    assert shortage.parse(ValueError(text)) is None
