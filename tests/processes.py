"""Commands and pairs of hosts, in processes of their own."""

import pathlib
import socket
import subprocess
import sys

from tests import environment

ROOT = str(pathlib.Path(__file__).resolve().parents[1])


def start(module: str, *arguments: str) -> subprocess.Popen:
  """Starts `python -m MODULE` in the repository, on one device.

  Its stdout has all that it prints.
  """
  return subprocess.Popen(
    [sys.executable, '-m', module, *arguments],
    cwd=ROOT,
    env=environment.for_devices(1),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def run_code(code: str, *arguments: str, env: dict | None = None):
  """Runs a program in the repository; returns its end, with its output."""
  return subprocess.run(
    [sys.executable, '-c', code, *arguments],
    cwd=ROOT,
    env=env,
    capture_output=True,
    text=True,
  )


def run_pair(module: str, directory) -> list[tuple[str, str]]:
  """Runs `python -m MODULE PORT PROCESS DIRECTORY` for processes 0 and 1.

  Returns:
    (stdout, stderr) of each.
  """
  with socket.socket() as found:
    found.bind(('localhost', 0))
    port = found.getsockname()[1]
  processes = [
    subprocess.Popen(
      [sys.executable, '-m', module, str(port), str(k), str(directory)],
      cwd=ROOT,
      env=environment.for_devices(2),
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for k in range(2)
  ]
  said = [process.communicate() for process in processes]
  assert [process.returncode for process in processes] == [0, 0], said
  return said
