"""How a worker process of a pool behaves."""

import os
import signal
import threading
import time


def start(parent: int):
  """Leaves signals to the parent, and ends when the parent is gone.

  Args:
    parent: its process id. A pool's workers would wait for ever for work from
      a parent that was killed.
  """
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)

  def watch():
    while os.getppid() == parent:
      time.sleep(0.5)
    os._exit(1)

  threading.Thread(target=watch, daemon=True).start()
