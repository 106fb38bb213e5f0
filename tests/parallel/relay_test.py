"""Tests of the relay between jax's client and process 0."""

import os
import socket

import pytest

from bert_jax.parallel import relay


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
  for name in ('no_grpc_proxy', 'no_proxy'):
    monkeypatch.setenv(name, '')


def connect(address):
  host, _, port = address.rpartition(':')
  found = socket.create_connection((host, int(port)))
  found.settimeout(10)
  return found


@pytest.fixture
def joined():
  """Yields (this process's end, process 0's end) of a relayed connection."""
  with socket.create_server(('localhost', 0)) as server:
    address = f'localhost:{server.getsockname()[1]}'
    near = connect(relay.start(address))
    far, _ = server.accept()
    far.settimeout(10)
    with near, far:
      yield near, far


def receive(end, count):
  found = b''
  while len(found) < count:
    found += end.recv(count - len(found))
  return found


def test_bytes_pass_in_both_directions(joined):
  near, far = joined
  data = os.urandom(300_000)
  for source, target in ((near, far), (far, near)):
    source.sendall(data[: 1 << 16])
    assert receive(target, 1 << 16) == data[: 1 << 16]


def test_a_dead_process_0_looks_silent(joined):
  near, far = joined
  far.sendall(b'last words')
  far.close()
  assert receive(near, 10) == b'last words'
  near.settimeout(0.2)
  with pytest.raises(TimeoutError):
    near.recv(1)
  for _ in range(3):  # the first may succeed
    near.sendall(b'are you there?')
    with pytest.raises(TimeoutError):
      near.recv(1)


def test_process_0_sees_that_this_process_closes(joined):
  near, far = joined
  far.sendall(b'x')
  assert near.recv(1) == b'x'
  near.close()
  assert far.recv(1) == b''


def test_jax_may_try_again_while_nobody_listens():
  with socket.create_server(('localhost', 0)) as server:
    port = server.getsockname()[1]
  address = relay.start(f'localhost:{port}')
  with connect(address) as near:
    assert near.recv(1) == b''
  with socket.create_server(('localhost', port)) as server:
    with connect(address) as near:
      far, _ = server.accept()
      with far:
        near.sendall(b'x')
        assert far.recv(1) == b'x'


@pytest.mark.parametrize(
  'name, value, expected',
  [
    ('no_proxy', '', '127.0.0.1'),
    ('no_proxy', '10.0.0.0/8', '10.0.0.0/8,127.0.0.1'),
    ('no_grpc_proxy', 'host', 'host,127.0.0.1'),
  ],
)
def test_a_proxy_is_not_asked_for_the_relay(name, value, expected, monkeypatch):
  monkeypatch.setenv(name, value)
  relay.start('localhost:1')
  assert os.environ['no_grpc_proxy'] == expected
