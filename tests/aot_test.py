"""The step's arguments, and what the compiler says of its memory."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import aot, config, errors, optim, sharding, task
from bert_jax import step as step_lib
from tests import training


def test_arguments_are_those_of_training():
  c = training.small_config()
  phase, mesh = task.phases(c)[0], sharding.make_mesh()
  state, batch, key = aot.arguments(c, phase, mesh)
  real = functools.partial(
    step_lib.init_state, task=training.make_task(c), tx=optim.make(c.optimizer)
  )(jax.random.key(0))

  def described(tree):
    return jax.tree.map(lambda x: (x.shape, str(x.dtype)), tree)

  assert described(state) == described(real)
  assert described(batch) == described(training.make_batch(0))
  assert described(key) == described(step_lib.run_key(c))
  assert batch['input_ids'].sharding == sharding.rows(mesh)


def test_a_device_holds_its_share():
  mesh = sharding.make_mesh()  # 4 devices
  x = jax.ShapeDtypeStruct(
    (8, 5), jnp.float32, sharding=NamedSharding(mesh, P('data'))
  )
  y = jax.ShapeDtypeStruct(
    (3,), jnp.bfloat16, sharding=NamedSharding(mesh, P())
  )
  assert aot.device_bytes({'x': x, 'y': y}) == 2 * 5 * 4 + 3 * 2


@pytest.mark.parametrize(
  'text, found',
  [
    (
      'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used '
      '20.5G of 15.75G hbm. Exceeded hbm capacity by 4.75G.',
      (20.5 * 2**30, 15.75 * 2**30, True),
    ),
    (
      'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory '
      'required for HLO temporaries (3.00T) exceeds available HBM (31.25G).',
      (3 * 2**40, 31.25 * 2**30, False),
    ),
  ],
)
def test_what_is_missing_is_read_from_the_error(text, found):
  assert aot._limits(ValueError(text)) == found


def test_gradients_are_not_in_shares_until_they_are_added_up():
  c = config.pretraining('tiny')
  found = [
    aot.gradient_bytes(c, sharding.make_mesh(model, jax.devices()[:n]))
    for n, model in ((1, 1), (4, 1), (2, 2))
  ]
  # 30720 rows, 2 layers of 198,272, positions, heads and the rest: 4,459,010.
  assert found[0] == found[1] == 4 * 4_459_010
  assert found[0] / 2 < found[2] < 0.55 * found[0]


def test_other_errors_are_not_taken_for_a_lack_of_memory():
  with pytest.raises(errors.UserError, match='fails: INTERNAL: x; if it'):
    aot._limits(ValueError('INTERNAL: x.\nmore'))
