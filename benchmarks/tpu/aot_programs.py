"""Compiles steps without a TPU, each in its own process.

The text and memory of a program are kept in a folder and not compiled again.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import aot_compile

from bert_jax import config as config_lib
from bert_jax import tasks
from bert_jax.hardware import topology as topology_lib
from bert_jax.interop import config_file
from bert_jax.preflight import compile_step, hlo_cost
from bert_jax.train import task

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = os.path.join(os.path.dirname(HERE), 'measure', 'step_peers')
PREDICTIONS = {128: 20, 512: 76}  # per row, at most, by length
FULL = {'base': 12, 'large': 24}  # layers
FEW = 2, 4  # layers that are compiled, to extrapolate to all


def settings_of(topology, size, length, rows):
  """Returns what a process needs to know about a step, as plain data.

  Args:
    topology: a name, see `topology.parse`.
    size: 'base' or 'large'.
    length: tokens per row.
    rows: global batch of a step.
  """
  return {
    'program': 'ours',  # or 'flax'
    'topology': topology_lib.parse(topology).name,
    'size': size,
    'length': length,
    'predictions': PREDICTIONS[length],
    'rows': rows,
    'layers': FULL[size],
    'dropout': 0.1,  # of hidden states and of attention
    'pack': 1,  # pairs of a row, at most
  }


class Programs:
  """A folder of compiled programs."""

  def __init__(self, folder, flax_python):
    """Args: folder to use; interpreter with libtpu and FlaxBert, or None."""
    os.makedirs(folder, exist_ok=True)
    self._folder = folder
    ours = [sys.executable, os.path.join(HERE, 'aot_compile.py')]
    flax = os.path.join(PEERS, 'flax_bert_aot.py')
    self._commands = {'ours': ours, 'flax': [flax_python, flax]}

  def get(self, settings):
    """Returns (memory, cost) of a step, which must fit into memory."""
    memory, text = self.get_text(settings)
    return memory, hlo_cost.count_cost(text)

  def get_text(self, settings):
    """Returns (memory, scheduled HLO) of a step, which must fit into memory."""
    base = self.path(settings)
    if not os.path.exists(f'{base}.json'):
      self._compile(settings, base)
    with open(f'{base}.json') as file:
      found = json.load(file)
    if not found['fits']:
      raise SystemExit(f'error: {base} does not fit; give fewer tokens.')
    with open(f'{base}.hlo') as file:
      return compile_step.Memory(**found['memory']), file.read()

  def path(self, settings):
    """Returns the path of a program, without .hlo (text) and .json (memory)."""
    name = '-'.join(map(str, settings.values())).replace(':', '_')
    return os.path.join(self._folder, name)

  def line(self, settings):
    """Returns (memory, cost) of all layers, extrapolated from few of them."""
    along = (*FEW, settings['layers'])
    found = [self.get({**settings, 'layers': n}) for n in FEW]
    memories, costs = zip(*found, strict=True)
    memory = compile_step.Memory(
      **{
        k: hlo_cost.extrapolate_number(a, getattr(memories[1], k), along)
        for k, a in vars(memories[0]).items()
      }
    )
    return memory, hlo_cost.extrapolate(*costs, along)

  def _compile(self, settings, base):
    began = time.monotonic()
    print(f'compiling {os.path.basename(base)} ...', end=' ', flush=True)
    with tempfile.NamedTemporaryFile('w', suffix='.json') as case:
      json.dump({'settings': _settings(settings), 'path': f'{base}.hlo'}, case)
      case.flush()
      done = subprocess.run(
        [*self._commands[settings['program']], case.name],
        capture_output=True,
        text=True,
        env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
      )
    if done.returncode:
      raise SystemExit(
        f'error: {" ".join(done.args)} ended with exit code '
        f'{done.returncode}:\n{done.stderr[-2000:]}'
      )
    found = json.loads(done.stdout.splitlines()[-1])
    with open(f'{base}.json', 'w') as file:
      json.dump(found, file)
    print(f'{time.monotonic() - began:.0f} s', flush=True)


def _settings(settings):
  """Adds the configs for FlaxBert's step: ours, and that of transformers."""
  config = aot_compile.get_config(settings)
  return {
    **settings,
    'options': topology_lib.parse(settings['topology']).options,
    'config': config_lib.flatten(config),
    'transformers': config_file.from_config(config_lib.model_config(config)),
  }


def flops(settings):
  """Returns the model FLOPs of a step with all layers on one device."""
  config = aot_compile.get_config(settings)
  work = (
    tasks.get(config).make_objective(config).flops(task.list_phases(config)[0])
  )
  return work / topology_lib.parse(settings['topology']).devices
