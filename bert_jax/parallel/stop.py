"""The signal on which all hosts stop, at the same step."""

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.parallel import distributed
from bert_jax.runtime import signals


class Stop:
  """The signal on which all processes stop, at the same step.

  Args:
    own: what this process was sent.

  Attributes:
    signum: the largest that any process was sent, None as long as the
      processes have not agreed to stop. One process alone need not ask.
  """

  def __init__(self, own: signals.Stop):
    self._own = own
    self._agreed = 0
    self._vote = None

  @property
  def signum(self) -> int | None:
    if jax.process_count() == 1:
      return self._own.signum
    return self._agreed or None

  def ask(self):
    """Asks all processes and waits for them."""
    self._agreed = distributed.find_largest(
      self._agreed or self._own.signum or 0
    )

  def ask_ahead(self, mesh: Mesh):
    """Asks all processes, takes the answer of the call before.

    It follows that step's update on the devices, so nobody waits for it.
    """
    if jax.process_count() == 1:
      return
    before, of_mesh = self._vote, distributed.votes(mesh)
    mine = np.full(jax.local_device_count(), self._own.signum or 0, np.int32)
    # jax takes what is asked for here for implicit.
    with jax.transfer_guard_host_to_device('allow'):
      found = jax.make_array_from_process_local_data(of_mesh.sharding, mine)
    self._vote = distributed.largest_of(found)
    if before is not None:
      self._agreed = int(jax.device_get(before))
