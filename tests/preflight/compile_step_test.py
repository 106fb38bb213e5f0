"""The step's arguments, and what the compiler says of its memory."""

import jax

from bert_jax import config
from bert_jax.parallel import device_mesh
from bert_jax.preflight import compile_step
from bert_jax.pretraining import pretrain


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
