"""Files of torch.save and of TensorFlow are read, and written, bit for bit."""

import functools
import pickletools
import time
import zipfile

import jax
import numpy as np

from bert_jax import config as config_lib
from bert_jax.interop import google, rename
from bert_jax.model import heads, parameters
from bert_jax.tokenization import tokenizer
from bert_jax.weight_files import torch_bin


def find_differences(found, wanted):
  """Returns names of one side only, or whose type, shape or bits differ."""
  wrong = sorted(found.keys() ^ wanted.keys())
  for name in found.keys() & wanted.keys():
    a, b = found[name], wanted[name]
    if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
      wrong.append(name)
  return wrong


def test_files_of_torch_are_read(tmp_path, in_transformers):
  wanted = {'kinds': {}, 'large': {}}
  job = {'folder': str(tmp_path)}
  for key, x in in_transformers('save', job, {}).items():
    name, _, key = key.partition('/')
    wanted[name][key] = x
  for name, arrays in wanted.items():
    for form in ('zip', 'legacy'):
      path, begin = tmp_path / f'{name}.{form}', time.perf_counter()
      found = torch_bin.read(str(path))
      seconds = time.perf_counter() - begin
      size = path.stat().st_size / 1e6
      print(
        f'{path.name}: {len(found)} tensors, {size:.0f} MB, {seconds:.2f} s'
      )
      assert not find_differences(found, arrays)
  # What the limits of the reader allow for.
  with zipfile.ZipFile(tmp_path / 'large.zip') as file:
    (name,) = (n for n in file.namelist() if n.endswith('/data.pkl'))
    content = file.read(name)
  opcodes = sum(1 for _ in pickletools.genops(content))
  print(f'BERT-large: a pickle of {len(content):,} bytes, {opcodes:,} opcodes')


def test_checkpoints_are_exchanged_with_tensorflow(tmp_path, in_tensorflow):
  config = config_lib.model_config(config_lib.pretraining('base'))
  init = functools.partial(parameters.init, heads.PretrainingModel(config))
  random = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: random.standard_normal(x.shape, np.float32),
    jax.eval_shape(init, jax.random.key(0)),
  )
  ours, folder = rename.to_google(params, config), str(tmp_path / 'ours')
  words = tokenizer.Tokenizer(tokenizer.SPECIAL)
  google.write(folder, params, config, words)
  prefix = f'{folder}/bert_model.ckpt'
  read = in_tensorflow('read', {'prefix': prefix}, {})
  assert not find_differences(ours, read)
  in_tensorflow('write', {'prefix': prefix}, ours)
  params, config, _, _, report = google.read(prefix)
  assert not find_differences(ours, rename.to_google(params, config))
  assert not report.missing
  assert report.left_over and all(map(google.is_slot, report.left_over))
  print(f'{len(ours)} tensors equal both ways')
