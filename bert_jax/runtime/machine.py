"""What this machine has, and how jax is to use it."""

import ctypes
import errno
import glob
import importlib.util
import os
import sys

from bert_jax import errors
from bert_jax.runtime import storage

# jax's compilers for accelerators, as modules.
TPU_COMPILER = 'libtpu'
CUDA_COMPILERS = {13: 'jax_plugins.xla_cuda13', 12: 'jax_plugins.xla_cuda12'}

_ACCELERATORS = (
  *('/dev/accel*', '/dev/vfio/[0-9]*'),
  *('/dev/nvidia[0-9]*', '/dev/kfd'),
)
# Of the C library's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_MOST = 2**31 - 1  # bytes; larger arrays are given back as before


def is_installed(module: str) -> bool:
  """Returns whether a module can be imported, without importing it."""
  try:
    return importlib.util.find_spec(module) is not None
  except ModuleNotFoundError:  # nor is the package that it is a part of
    return False


def has_accelerator() -> bool:
  """Returns whether jax will find a TPU or a GPU, without asking it."""
  asked = os.environ.get('JAX_PLATFORMS', '')
  return asked != 'cpu' and any(map(glob.glob, _ACCELERATORS))


def skip_absent_tpu():
  """Chooses the CPU where preflight's compiler for TPUs has no TPU to look for.

  It prints many lines of errors, and once waited for ten minutes.
  """
  asked = {'JAX_PLATFORMS', 'JAX_FORCE_TPU_INIT'} & os.environ.keys()
  windows_gpu = os.path.exists('/dev/dxg')  # under WSL
  if asked or windows_gpu or has_accelerator():
    return
  if is_installed(TPU_COMPILER):
    os.environ['JAX_PLATFORMS'] = 'cpu'
    if 'jax' in sys.modules:  # which has read that variable
      sys.modules['jax'].config.update('jax_platforms', 'cpu')


def keep_freed_memory():
  """Makes the C library keep freed memory; call it before jax is imported.

  On a CPU, XLA gets all intermediate results of a program by one malloc, which
  glibc gives back at the end, and the system clears every page again for the next
  update: 22,000 pages for BERT-Mini on short texts, a quarter of its time. Threads
  have to share one arena, because others are limited to 64 MB.
  """
  if has_accelerator():
    return
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (AttributeError, OSError, TypeError):
    return
  for parameter, value in (
    (_ARENA_MAX, 1),
    (_TRIM_THRESHOLD, _MOST),
    (_MMAP_THRESHOLD, _MOST),  # of which glibc before 2.35 refuses so much
  ):
    mallopt(parameter, value)


def keep_programs():
  """Turns jax's cache of compiled programs on, if there can be one.

  Call it when jax is imported, before it compiles.
  """
  config = sys.modules['jax'].config
  if config.jax_compilation_cache_dir:  # the user's own
    return
  try:
    folder = storage.get_cache_folder('xla')
    os.makedirs(folder, exist_ok=True)
    # Otherwise jax warns of each program.
    if not os.access(folder, os.W_OK | os.X_OK):
      raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
  except (OSError, errors.UserError) as error:
    line = f'compiled programs are not kept: {error}'
    print(line, file=sys.stderr, flush=True)
    return
  config.update('jax_compilation_cache_dir', folder)
