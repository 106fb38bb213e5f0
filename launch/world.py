"""How a supervisor acts on the world."""

import dataclasses
import secrets
import time
from collections.abc import Callable

from launch import commands


@dataclasses.dataclass
class World:
  """How a supervisor acts on the world; replaced by stand-ins in tests.

  Attributes:
    run: runs a command.
    now: returns seconds since 1970.
    sleep: waits for some seconds.
    period: seconds between two looks.
    writer: what tells this supervisor from others of the run.
  """

  run: commands.Execute = commands.execute
  now: Callable[[], float] = time.time
  sleep: Callable[[float], None] = time.sleep
  period: float = 30.0
  writer: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))
