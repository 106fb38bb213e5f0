"""Reads or writes a checkpoint with TensorFlow, run by an interpreter with it.

  PYTHON in_tensorflow.py read|write FOLDER

conftest.py starts it; job and results are those of in_transformers.py.
"""

import json
import os
import sys

import numpy as np
import tensorflow as tf


def read(job, arrays):
  """Returns all variables of a checkpoint."""
  reader = tf.train.load_checkpoint(job['prefix'])
  return {
    name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
  }


def write(job, arrays):
  """Saves arrays and variables of an optimizer, sharded over two devices."""
  v1, values = tf.compat.v1, dict(arrays)
  for name in list(arrays)[:5]:
    values[f'{name}/adam_m'] = values[name] * np.float32(0.5)
    values[f'{name}/adam_v'] = values[name] ** 2
  values['global_step'] = np.int64(1_000_000)
  with tf.Graph().as_default():
    feed = {}
    for i, (name, value) in enumerate(sorted(values.items())):
      with tf.device(f'/cpu:{i % 2}'):
        variable = v1.get_variable(name, value.shape, value.dtype)
        feed[variable.initializer.inputs[1]] = value
    with v1.Session(config=v1.ConfigProto(device_count={'CPU': 2})) as session:
      session.run(v1.global_variables_initializer(), feed)
      v1.train.Saver(sharded=True).save(session, job['prefix'])
  return {}


def main():
  _, name, folder = sys.argv
  with open(os.path.join(folder, 'job.json'), encoding='utf-8') as file:
    job = json.load(file)
  with np.load(os.path.join(folder, 'arrays.npz')) as file:
    arrays = dict(file)
  found = {'read': read, 'write': write}[name](job, arrays)
  np.savez(os.path.join(folder, 'found.npz'), **found)


if __name__ == '__main__':
  main()
