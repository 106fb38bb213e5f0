"""Hides from jax that its connection to process 0 has closed.

Jax's client ends its process, within milliseconds and without a Python
exception, when the connection to process 0 closes, and no option prevents it.
It waits for a process 0 that is silent, however, until the heartbeat timeout.
So each client connects through a relay in its own process, which keeps the
connection open when process 0 dies. `watchdog` then has the time to say so.
"""

import contextlib
import os
import socket
import threading

_CHUNK = 1 << 16  # bytes


def start(address: str) -> str:
  """Relays to HOST:PORT of process 0 from now on; returns our HOST:PORT."""
  # jax's connections obey http_proxy, which must not catch this one.
  direct = os.environ.get('no_grpc_proxy') or os.environ.get('no_proxy', '')
  os.environ['no_grpc_proxy'] = f'{direct},127.0.0.1'.lstrip(',')
  host, _, port = address.rpartition(':')
  listener = socket.create_server(('127.0.0.1', 0))
  _run(_accept, listener, (host.strip('[]'), int(port)))
  return f'127.0.0.1:{listener.getsockname()[1]}'


def _run(function, *args):
  threading.Thread(
    target=function, args=args, name='relay', daemon=True
  ).start()


def _accept(listener, address):
  while True:
    near, _ = listener.accept()
    _run(_join, near, address)


def _join(near, address):
  """Connects to process 0 and copies in both directions."""
  try:
    far = socket.create_connection(address)
  except OSError:  # not listening yet: jax tries again
    near.close()
    return
  with near, far, contextlib.suppress(OSError):
    for end in (near, far):
      end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _run(_copy, far, near)
    _copy(near, far)
    with contextlib.suppress(OSError):
      far.shutdown(socket.SHUT_RDWR)  # also ends the other thread
    while near.recv(_CHUNK):  # process 0 is gone, and jax is not to know
      pass


def _copy(source, target):
  """Copies until either end closes."""
  with contextlib.suppress(OSError):
    while data := source.recv(_CHUNK):
      target.sendall(data)
