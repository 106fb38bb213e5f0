"""Tests of what is said where a device has too little memory."""

import types

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors
from bert_jax.parallel import device_mesh
from bert_jax.trainer import programs, shortage

GIB = 2**30
HBM = (
  'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.5G of '
  '15.75G hbm. Exceeded hbm capacity by 4.75G.'
)


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
def test_the_optimizer_stays_while_the_model_is_evaluated(left):
  made = {
    'step': make_program(6 * GIB, 2 * GIB),
    'evaluation': make_program(2 * GIB, 4 * GIB),
  }
  outcomes = [
    programs.Outcome(programs.Program(x, None, (), 1, 512), made[x], None)
    for x in left.split(' and ')
  ]
  where = SingleDeviceSharding(jax.devices()[0])
  state = [jax.ShapeDtypeStruct((6, GIB), jnp.uint8, sharding=where)]

  def check(most):
    stats = {'bytes_limit': most * GIB}
    device = types.SimpleNamespace(platform='gpu', memory_stats=lambda: stats)
    mesh = types.SimpleNamespace(local_devices=[device])
    shortage.check(outcomes, state, mesh)

  check(10)
  said = 'evaluation of phase 1 at length 512 does not fit: it needs 10.00 GiB'
  with pytest.raises(errors.UserError, match=said):
    check(9)


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
