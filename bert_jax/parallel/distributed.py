"""Runs on several hosts: one process each, one program, one global batch."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bert_jax import errors
from bert_jax.runtime import cli

_DAY = 24 * 60 * 60  # seconds to wait while process 0 prepares or exports
_LEAVE_SECONDS = 20  # to wait for processes that may not end
# Environment variables that list the hosts of a TPU.
_LISTS = ('TPU_PROCESS_ADDRESSES', 'TPU_WORKER_HOSTNAMES')
_CONNECT_SECONDS = 300  # to wait for the other processes
_HEARTBEAT_SECONDS = 40  # without one, jax takes a process for dead


def start(
  coordinator: str | None, num_processes: int | None, process_id: int | None
):
  """Connects the processes of a run; call it before jax computes.

  On Cloud TPU and GKE the processes find one another; elsewhere they need the
  arguments. Without them there is one process, also on a TPU VM that knows of
  no other hosts. Only process 0 prints.

  Args:
    coordinator: HOST:PORT of process 0; the port must be free.
    num_processes: 1 does not look for others, not even on Cloud TPU.
  """
  given, nothing = (coordinator, num_processes, process_id), (None, None, None)
  if given == (None, 1, None) or (given == nothing and not _has_tpu()):
    return
  if given != nothing and (
    None in given
    or not coordinator.rpartition(':')[2].isdecimal()
    or not 0 <= process_id < num_processes
  ):
    raise errors.UserError(
      f'--coordinator={coordinator} --num_processes={num_processes} '
      f'--process_id={process_id}: give HOST:PORT of process 0, how many there '
      'are, and which this is, from 0; or none of them for one process.'
    )
  # CPU devices need a library for collectives.
  jax.config.update('jax_cpu_collectives_implementation', 'gloo')
  # This service would handle SIGTERM, which `signals` handles.
  jax.config.update('jax_enable_preemption_service', False)
  try:
    jax.distributed.initialize(
      *given,
      # Otherwise, under Slurm, jax gives each process a single GPU.
      cluster_detection_method='deactivate' if coordinator else None,
      initialization_timeout=_CONNECT_SECONDS,
      heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
      shutdown_timeout_seconds=_LEAVE_SECONDS,
    )
  # jax queries Google's metadata server with requests, which raises OSErrors.
  except (OSError, RuntimeError, ValueError) as error:
    if not coordinator and _knows_no_hosts(error):
      three = '--coordinator, --num_processes and --process_id (docs/hosts.md)'
      if jax.process_count() > 1:
        raise errors.UserError(
          f'this TPU belongs to a slice of {jax.process_count()} hosts, but no '
          f'metadata server names them; start again, or give {three}.'
        ) from error
      print(
        'found no metadata server and no list of other TPU hosts: training on '
        f'this host alone. For several hosts give {three}; --num_processes=1 '
        'skips this search.'
      )
      return
    raise errors.UserError(
      f'cannot connect to the other processes: {errors.first_line(error)}. '
      'Start the same command on every host, or with --num_processes=1 to '
      'train on this one alone; see docs/hosts.md.'
    ) from error
  if jax.process_index():
    sys.stdout = open(os.devnull, 'w', encoding='utf-8')


def _has_tpu() -> bool:
  # Set by jax if it finds chips and the user did not choose a platform.
  return 'tpu' in (jax.config.jax_platforms or '')


def _knows_no_hosts(error: Exception) -> bool:
  if 'MEGASCALE_COORDINATOR_ADDRESS' in os.environ:
    return False
  if any(',' in os.environ.get(name, '') for name in _LISTS):
    return False
  # jax raises this ValueError if it does not recognise a cluster.
  return isinstance(error, OSError) or 'coordinator_address' in str(error)


def is_first() -> bool:
  """Returns whether this is process 0, which alone prepares, writes, prints."""
  return jax.process_index() == 0


def barrier(name: str, seconds: int = _DAY):
  """Waits for all processes, `seconds` at most; a name is used only once."""
  wait = ocp.multihost.get_barrier_sync_fn()
  wait(key=f'bert_jax {name}', timeout_ms=1000 * seconds)


def first_then_all(name: str, function: Callable[[], object]):
  """Calls `function` in process 0; the others wait until it returns."""
  if is_first():
    function()
  barrier(name)


@contextlib.contextmanager
def leaving_together() -> Iterator[None]:
  """Lets the processes of a run end together, each with its exit code.

  If the others do not end, this process does before jax, which waits for them,
  too, aborts it and hides its code; without its heartbeat, jax aborts them.
  """
  if jax.process_count() == 1:
    yield
    return
  try:
    yield
  except (Exception, errors.Interrupted) as error:
    # Now, since jax may abort this process meanwhile.
    code = cli.report(error)
    sys.stdout.flush()
    sys.stderr.flush()
    everywhere = getattr(error, 'everywhere', False)
    try:
      # Process 0 may take minutes to close its files in a bucket.
      barrier('leave', _DAY if everywhere else _LEAVE_SECONDS)
    except jax.errors.JaxRuntimeError:
      os._exit(code)
    sys.exit(code)
  barrier('leave')


def find_largest(value: int) -> int:
  """Returns the maximum of the values that all processes call this with."""
  if jax.process_count() == 1:
    return value
  return int(multihost_utils.process_allgather(np.int32(value)).max())


def sum_global(own: np.ndarray, whole: jax.Array):
  """Returns the sum of a global array; with many hosts, on the device."""
  return int(own.sum()) if jax.process_count() == 1 else sum_of(whole)


@jax.jit
def sum_of(x: jax.Array):
  return jnp.sum(x)


@jax.jit
def largest_of(votes: jax.Array):
  """Returns the maximum of the numbers that the devices hold, see `votes`."""
  return jnp.max(votes)


def votes(mesh: Mesh) -> jax.ShapeDtypeStruct:
  """Returns the shape and sharding of one number from each device."""
  everywhere = NamedSharding(mesh, P(mesh.axis_names))
  return jax.ShapeDtypeStruct((mesh.size,), jnp.int32, sharding=everywhere)


def jit_put(layout: Any):
  """Returns a jitted function that shards arrays that every process has.

  `jax.device_put` reaches only the devices of its process.
  """
  return jax.jit(lambda x: x, out_shardings=layout)
