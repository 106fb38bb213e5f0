"""Makes all hosts stop, or save, at the same step."""

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax.parallel import distributed
from bert_jax.runtime import signals


class Stop:
  """The signal on which all processes stop, and when they save, at the same step.

  Attributes:
    signum: the largest signal number that any process received; None until the
      processes have agreed to stop. A single process need not ask.
    save: whether the processes have agreed to save a checkpoint now.
  """

  def __init__(self, own: signals.Stop):
    self._own = own
    self._agreed = 0
    self._vote = None
    self._asked = self.save = False

  @property
  def signum(self) -> int | None:
    if jax.process_count() == 1:
      return self._own.signum
    return self._agreed or None

  def ask(self):
    """Asks all processes whether to stop, and waits for the answer."""
    self._agreed = distributed.find_largest(
      self._agreed or self._own.signum or 0
    )

  def ask_ahead(self, mesh: Mesh, due: bool = False):
    """Asks all processes, and reads the answer to the previous call.

    That answer was computed after the previous update, so it takes no waiting.
    """
    if jax.process_count() == 1:
      self.save = due
      return
    before, of_mesh = self._vote, distributed.votes(mesh)
    # Not again before the answer, which comes when the next vote is under way.
    vote = 2 * (self._own.signum or 0) + (due and not self._asked)
    self._asked = due
    mine = np.full(jax.local_device_count(), vote, np.int32)
    # jax's guard takes this explicit transfer for implicit.
    with jax.transfer_guard_host_to_device('allow'):
      found = jax.make_array_from_process_local_data(of_mesh.sharding, mine)
    self._vote = distributed.largest_of(found)
    if before is not None:
      self._agreed, save = divmod(int(jax.device_get(before)), 2)
      self.save = bool(save)
      self._asked &= not self.save
