"""Calls kernels for NVIDIA GPUs (Pallas through Triton), where they can run."""

import functools
from collections.abc import Callable

import jax
from jax.experimental import pallas as pl


def can_read(x: jax.Array) -> bool:
  """Returns whether a kernel can read all of x here."""
  mesh = jax.sharding.get_abstract_mesh()
  # Kernels cannot be partitioned automatically, see `trainer/gradient.py`.
  by_hand = set(mesh.manual_axes) == set(mesh.axis_names)
  # Beyond, Triton needs offsets of 64 bits, which were not tried.
  return by_hand and 0 < x.size < 2**31


def choose(kernel: Callable, plain: Callable, *arrays: jax.Array | None):
  """Returns kernel(*arrays) on CUDA and plain(*arrays) elsewhere.

  With a jax that has no Triton, it is plain(*arrays) on CUDA, too.

  Args:
    kernel: takes `make_params`, for `call`.
  """
  try:
    # Imported late: jax has announced its removal.
    from jax.experimental.pallas import triton
  except ImportError:
    return plain(*arrays)
  # Depends on the platform that is compiled for, even if it is absent here.
  return jax.lax.platform_dependent(
    *arrays,
    cuda=functools.partial(kernel, make_params=triton.CompilerParams),
    default=plain,
  )


def by_name(kernel: Callable, *names: str) -> Callable:
  """Returns a kernel that is given its references as {name: reference}."""
  return lambda *refs: kernel(dict(zip(names, refs, strict=True)))


def call(kernel: Callable, make_params: Callable | None, warps: int, **options):
  """Returns `pl.pallas_call`, interpreted if there is no make_params."""
  how = {'interpret': True}
  if make_params:
    how = {'compiler_params': make_params(num_warps=warps)}

  def run(*arrays):
    # With jax_enable_x64, loops have int64 counters.
    with jax.enable_x64(False):
      return pl.pallas_call(kernel, **how, **options)(*arrays)

  return run
