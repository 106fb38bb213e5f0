"""What is compiled while training, where nothing should be."""

import contextlib
import dataclasses
import os
import threading

import jax

# Of jax; recorded for what the cache holds, too.
_EVENT = '/jax/core/compile/backend_compile_duration'


@dataclasses.dataclass
class Compiled:
  """Programs that a thread compiled.

  Attributes:
    count: how many.
    seconds: that this took.
  """

  count: int = 0
  seconds: float = 0.0


@contextlib.contextmanager
def counted():
  """Yields a `Compiled` that counts what this thread compiles meanwhile."""
  found, thread = Compiled(), threading.get_ident()

  def listen(event, seconds, **details):
    del details
    if event == _EVENT and threading.get_ident() == thread:
      found.count += 1
      found.seconds += seconds

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield found
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def use_cache():
  """Keeps compiled programs from one run to the next."""
  if not jax.config.jax_compilation_cache_dir:  # not the user's own
    directory = os.path.expanduser('~/.cache/bert_jax/xla')
    jax.config.update('jax_compilation_cache_dir', directory)
