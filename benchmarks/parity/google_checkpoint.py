"""Exchanges a BERT-base with TensorFlow, through Google's checkpoints.

  python benchmarks/parity/google_checkpoint.py --tensorflow=VENV/bin/python

First bert_jax writes and `tf.train.load_checkpoint` reads; then
`tf.compat.v1.train.Saver` writes, with optimizer variables and in two data
files, and bert_jax reads. Fails if any bit differs. The interpreter of
--tensorflow needs tensorflow and numpy, the one that runs this bert_jax.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

_PREFIX = 'bert_model.ckpt'


def _digests(tensors):
  """Returns {name: [dtype, shape, SHA-256 of the bytes]}."""
  return {
    name: [str(x.dtype), list(x.shape), hashlib.sha256(x.tobytes()).hexdigest()]
    for name, x in tensors.items()
  }


def _read_with_tensorflow(prefix):
  import tensorflow as tf

  reader = tf.train.load_checkpoint(prefix)
  names = reader.get_variable_to_shape_map()
  return _digests({name: np.asarray(reader.get_tensor(name)) for name in names})


def _write_with_tensorflow(prefix, shapes):
  """Saves random arrays of given names and shapes, sharded over two devices."""
  import tensorflow as tf

  v1 = tf.compat.v1
  random = np.random.default_rng(1)
  values = {
    name: random.standard_normal(shape, np.float32)
    for name, shape in shapes.items()
  }
  # Some variables of an optimizer.
  for name in list(values)[:5]:
    values[f'{name}/adam_m'] = values[name] * np.float32(0.5)
    values[f'{name}/adam_v'] = values[name] ** 2
  values['global_step'] = np.int64(1_000_000)
  with tf.Graph().as_default():
    feed = {}
    for i, (name, value) in enumerate(sorted(values.items())):
      with tf.device(f'/cpu:{i % 2}'):
        variable = v1.get_variable(name, value.shape, value.dtype)
        feed[variable.initializer.inputs[1]] = value
    settings = v1.ConfigProto(device_count={'CPU': 2})
    with v1.Session(config=settings) as session:
      session.run(v1.global_variables_initializer(), feed)
      v1.train.Saver(sharded=True).save(session, prefix)
  return _digests(values)


def _in_tensorflow(python, role, prefix, shapes):
  """Runs a function above in the other interpreter; returns its result."""
  command = [python, os.path.abspath(__file__), '--role', role, prefix]
  done = subprocess.run(
    command,
    input=json.dumps(shapes),
    capture_output=True,
    text=True,
  )
  if done.returncode:
    sys.exit(f'error: {python} failed:\n{done.stderr}')
  return json.loads(done.stdout.splitlines()[-1])


def _model():
  """Returns random parameters, config and tokenizer of BERT-base."""
  import functools

  import jax

  from bert_jax import config as config_lib
  from bert_jax.model import heads, parameters
  from bert_jax.tokenization import tokenizer

  config = config_lib.model_config(config_lib.pretraining('base'))
  init = functools.partial(parameters.init, heads.PretrainingModel(config))
  random = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: random.standard_normal(x.shape, np.float32),
    jax.eval_shape(init, jax.random.key(0)),
  )
  return params, config, tokenizer.Tokenizer(tokenizer.SPECIAL)


def _verdict(title, a, b):
  """Prints how many tensors are equal; returns whether all are."""
  wrong = sorted(name for name in {*a, *b} if a.get(name) != b.get(name))
  print(f'{title}: {len(a) - len(wrong)} of {len(a)} tensors are equal')
  for name in wrong[:5]:
    print(f'  {name}: {a.get(name)} against {b.get(name)}')
  return not wrong


def _exchange(python, directory):
  import jax

  jax.config.update('jax_platforms', 'cpu')
  from bert_jax.interop import google, rename

  params, config, words = _model()
  ours = rename.to_google(params, config)
  size = sum(x.nbytes for x in ours.values()) / 1e6
  folder = os.path.join(directory, 'ours')
  start = time.perf_counter()
  google.write(folder, params, config, words)
  print(f'bert_jax wrote {size:.0f} MB in {time.perf_counter() - start:.1f} s')
  prefix = os.path.join(folder, _PREFIX)
  good = _verdict(
    'bert_jax to TensorFlow',
    _digests(ours),
    _in_tensorflow(python, 'read', prefix, {}),
  )

  shapes = {name: x.shape for name, x in ours.items()}
  written = _in_tensorflow(python, 'write', prefix, shapes)
  print('TensorFlow wrote', *sorted(os.listdir(folder)))
  start = time.perf_counter()
  params, config, _, _, report = google.read(prefix)
  print(f'bert_jax read it in {time.perf_counter() - start:.1f} s')
  skipped = set(report.left_over)
  read = _digests(rename.to_google(params, config))
  left = {name: x for name, x in written.items() if name not in skipped}
  good &= _verdict('TensorFlow to bert_jax', left, read)
  good &= not report.missing and all(map(google.is_slot, skipped))
  print(f"skipped {len(skipped)} of the optimizer's, none missing")
  print('PASS' if good else 'FAIL')
  return 0 if good else 1


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--tensorflow', help='interpreter with tensorflow')
  parser.add_argument('--role', choices=['read', 'write'])
  parser.add_argument('prefix', nargs='?')
  args = parser.parse_args()
  if args.role == 'read':
    print(json.dumps(_read_with_tensorflow(args.prefix)))
    return 0
  if args.role == 'write':
    print(json.dumps(_write_with_tensorflow(args.prefix, json.load(sys.stdin))))
    return 0
  if not args.tensorflow:
    parser.error('--tensorflow is missing')
  with tempfile.TemporaryDirectory() as directory:
    return _exchange(args.tensorflow, directory)


if __name__ == '__main__':
  sys.exit(main())
