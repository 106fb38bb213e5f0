"""Tests of the key-value store, on jax's own service."""

import socket
import types

import jax
import pytest

from bert_jax.parallel import store


@pytest.fixture(scope='module')
def client():
  """Yields a client of a service for one process, without jax.distributed."""
  from jax._src.lib import _jax

  with socket.create_server(('localhost', 0)) as found:
    address = f'localhost:{found.getsockname()[1]}'
  service = _jax.get_distributed_runtime_service(address, 1)
  found = _jax.get_distributed_runtime_client(address, 0)
  found.connect()
  yield found
  found.shutdown()
  service.shutdown()


@pytest.fixture
def shared(client):
  yield store.Store(client)
  client.key_value_delete('bert_jax/')


def test_the_last_text_of_a_key_is_kept(shared):
  assert shared.read('a') is None
  shared.write('a', 'first')
  shared.write('a', 'zwölf')
  assert shared.read('a') == 'zwölf'


def test_a_name_that_is_no_text_is_told_all_the_same(shared):
  shared.write('a', 'cannot read \udcff.txt')
  assert shared.create('b', 'cannot read \udcff.txt')
  assert shared.read('a') == shared.read('b') == 'cannot read ?.txt'


def test_the_first_of_two_creates(shared):
  assert shared.create('why', 'disk full')
  assert not shared.create('why', 'no answer')
  assert shared.read('why') == 'disk full'


def test_a_folder_is_read_at_once(shared):
  assert shared.read_all('signs') == {}
  for key in ('signs/0', 'signs/12', 'signsnot/1'):
    shared.write(key, key)
  assert shared.read_all('signs') == {'0': 'signs/0', '12': 'signs/12'}


def test_other_errors_are_not_taken_for_an_answer():
  def fail(*args):
    raise jax.errors.JaxRuntimeError('UNAVAILABLE: Socket closed')

  broken = store.Store(
    types.SimpleNamespace(key_value_set=fail, key_value_try_get=fail)
  )
  for ask in (lambda: broken.create('a', ''), lambda: broken.read('a')):
    with pytest.raises(jax.errors.JaxRuntimeError, match='Socket closed'):
      ask()
