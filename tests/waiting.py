"""Waits for what another thread or process does."""

import time


def until(condition, seconds: float = 20):
  """Waits until a condition holds; fails if it takes too long."""
  deadline = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.01)
