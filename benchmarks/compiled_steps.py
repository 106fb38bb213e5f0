"""Training steps compiled for TPUs that are not there, kept in a folder.

For the scripts that estimate from them: to compile takes minutes, to estimate
again does not.
"""

import os
import re
import time

import jax

from bert_jax import aot, hlo, sharding, task
from bert_jax import config as config_lib
from bert_jax import topology as topology_lib

LAYERS = 2, 4  # compiled, to extrapolate from
PREDICTIONS = {128: 20, 512: 76}  # per sequence, by its length


def config(size: str, seq_length: int, batch_size: int):
  """Returns the paper's recipe with one phase and the fast dropout bits."""
  c = config_lib.pretraining(size)
  c.model.dtype, c.rng = 'bfloat16', 'rbg'
  c.phases.seq_length, c.phases.steps = (seq_length,), (1_000_000,)
  c.phases.batch_size, c.phases.accumulate = (batch_size,), (1,)
  c.phases.max_predictions = (PREDICTIONS[seq_length],)
  return c


def phase(c) -> task.Phase:
  """Returns the one phase of a config."""
  (found,) = task.phases(c)
  return found


def cost(c, topology: topology_lib.Topology, folder: str) -> hlo.Cost:
  """Returns what a device does in a step, from steps with few layers.

  Args:
    c: of `config`.
    topology: to compile for.
    folder: for the programs; those that are there are not compiled again.
  """
  found = [hlo.cost(text(c, topology, n, folder)) for n in LAYERS]
  return hlo.extrapolate(*found, (*LAYERS, c.model.num_layers))


def text(c, topology: topology_lib.Topology, layers: int, folder: str) -> str:
  """Returns the scheduled HLO of a step, compiled if it is not there."""
  one = phase(c)
  words = topology.name, c.model.hidden_size, one.seq_length, one.batch_size
  name = re.sub(r'\W', '-', '-'.join(map(str, words))) + f'-layers{layers}.hlo'
  path = os.path.join(folder, name)
  if not os.path.exists(path):
    print(f'compiling {name} ...', flush=True)
    start, c = time.monotonic(), c.copy_and_resolve_references()
    c.model.num_layers = layers
    # The compiler alone is used; accelerators that are here stay free.
    jax.config.update('jax_platforms', 'cpu')
    mesh = sharding.make_mesh(devices=aot.describe_devices(topology))
    found = aot.compile_step(c, one, mesh).text
    if found is None:
      raise ValueError(f'{name} does not fit the memory; use smaller batches.')
    print(f'compiled {name} in {time.monotonic() - start:.0f} s', flush=True)
    os.makedirs(folder, exist_ok=True)
    with open(path + '.partial', 'w') as file:
      file.write(found)
    os.replace(path + '.partial', path)
  with open(path) as file:
    return file.read()
