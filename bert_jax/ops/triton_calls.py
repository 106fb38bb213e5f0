"""Calls kernels for GPUs: Pallas through Triton, which jax is going to drop."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import pallas as pl


def find_problem() -> str | None:
  """Says why this jax has no such kernels, and what that costs; None if it has."""
  try:
    importlib.import_module('jax.experimental.pallas.triton')
  except ImportError:
    return (
      f"needs Pallas's Triton backend, which jax {jax.__version__} no longer "
      'has: each step moves about ten times the bytes of attention '
      '(docs/gpu.md); a jax below 0.13 has it'
    )
  return None


def call(
  kernel: Callable, arrays: list, warps: int, stages: int | None, **options
):
  """Returns what `pl.pallas_call` with `options` does of arrays.

  Off GPUs, Pallas' interpreter runs the kernel, slowly, for tests.

  Args:
    warps: of a program.
    stages: blocks that Triton loads in advance; None is its choice.
  """

  def on(gpu, *values):
    how: dict[str, Any] = {'interpret': True}
    if gpu:
      from jax.experimental.pallas import triton

      params = triton.CompilerParams(num_warps=warps, num_stages=stages)
      how = {'compiler_params': params}
    # With jax_enable_x64, loops have int64 counters.
    with jax.enable_x64(False):
      return pl.pallas_call(kernel, **how, **options)(*values)

  # Depends on the platform that is compiled for, even if it is absent here.
  return jax.lax.platform_dependent(
    *arrays,
    cuda=functools.partial(on, True),
    rocm=functools.partial(on, True),  # not tried; never interpreted there
    default=functools.partial(on, False),
  )
