"""Measures memory."""

import tracemalloc
from collections.abc import Callable


def measure(call: Callable[[], object]) -> int:
  """Returns the most bytes that Python allocates for a call at a time."""
  tracemalloc.start()
  try:
    call()
    return tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
