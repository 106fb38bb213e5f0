"""The processes that step.py compares: they train in turns of a few steps."""

import contextlib
import json
import os
import subprocess
import sys

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'step_peers')


class Peer:
  """A process that trains on request."""

  def __init__(self, name, command, settings, device, threads):
    self.name, self.seconds, self.cpu_seconds = name, [], []
    python, script, *rest = command
    self._command = [python, os.path.join(PEERS, script), settings, *rest]
    paths = os.path.dirname(PEERS), os.environ.get('PYTHONPATH')
    self._environment = {
      **os.environ,
      'PYTHONPATH': os.pathsep.join(filter(None, paths)),
      'OMP_NUM_THREADS': str(threads),
      'JAX_PLATFORMS': 'cuda' if device == 'gpu' else 'cpu',
      'XLA_PYTHON_CLIENT_PREALLOCATE': 'false',  # others need memory, too
      'TRANSFORMERS_VERBOSITY': 'error',
    }
    self._process = None

  def start(self):
    self._process = subprocess.Popen(
      self._command,
      env=self._environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def wait(self):
    """Waits until the model is compiled."""
    facts = self._answer()
    self.device = facts['device']
    print(f'{self.name}: {facts["versions"]}, {self.device}', flush=True)

  def _answer(self):
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      sys.exit(f'error: {self.name} ended with exit code {code}.')
    return json.loads(line)

  def turn(self, steps):
    """Runs steps; keeps the time of one, and the last loss; returns the answer."""
    with contextlib.suppress(BrokenPipeError):  # then there is no answer
      self._process.stdin.write(f'{steps}\n')
      self._process.stdin.flush()
    self.last = answer = self._answer()
    self.seconds.append(answer['seconds'] / steps)
    self.cpu_seconds.append(answer['cpu_seconds'] / steps)
    self.loss = answer['loss']
    return answer

  def close(self):
    """Ends the process; again does nothing."""
    if self._process:
      with contextlib.suppress(BrokenPipeError):
        self._process.stdin.close()
      self._process.wait()


def take_turns(peers, args):
  """Lets processes train in turns; returns those that could, all ended."""
  groups = [[peer] for peer in peers] if args.one_at_a_time else [peers]
  return [
    peer for group in groups for peer in _train(group, args.rounds, args.steps)
  ]


def _train(peers, rounds, steps):
  """Lets processes compile at once, then train in turns."""
  able = list(peers)

  def let(act):
    for peer in tuple(able):
      try:
        act(peer)
      except SystemExit as error:
        print(f'FAIL: {error}')  # the others are compared all the same
        able.remove(peer)

  try:
    for peer in peers:
      peer.start()
    let(Peer.wait)
    for _ in range(rounds):
      let(lambda peer: peer.turn(steps))
  finally:
    for peer in peers:
      peer.close()
  return able
