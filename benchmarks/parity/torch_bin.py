"""Compares torch_bin with torch on files that torch.save writes.

  python benchmarks/parity/torch_bin.py --torch=PYTHON

PYTHON is the interpreter of an environment with torch; this one has bert_jax.
Files are written with torch.save in both formats, read here, and compared bit
by bit with torch's tensors: dtypes, tied tensors, views, parameters, and a
state dict of BERT-large, whose size and time are printed, too.
"""

import argparse
import os
import pickletools
import subprocess
import sys
import tempfile
import time
import zipfile

import numpy as np

_FORMATS = ('zip', 'legacy')


def write(folder):
  """Writes files with torch, and beside each its tensors as .npz."""
  import torch

  print(f'torch {torch.__version__}')
  for name, tensors in (
    ('kinds', _kinds(torch)),
    ('module', _module(torch)),
    ('BERT-large', _large(torch)),
  ):
    for form in _FORMATS:
      torch.save(
        tensors,
        os.path.join(folder, f'{name}.{form}'),
        _use_new_zipfile_serialization=form == 'zip',
      )
    arrays = {}
    for key, x in tensors.items():
      x = x.detach()
      arrays[key] = (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    np.savez(os.path.join(folder, name), **arrays)


def _kinds(torch):
  torch.manual_seed(0)
  x = torch.randn(3, 4)
  kinds = {
    str(dtype).removeprefix('torch.'): (x * 100).to(dtype)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    + (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    + (torch.bool,)
  }
  return kinds | {
    'tied': kinds['float32'],
    'transposed': kinds['float32'].T,
    'part': kinds['float32'][1:, ::2],
    'one row': torch.arange(5).expand(1, -1),
    'scalar': torch.tensor(1.5),
    'parameter': torch.nn.Parameter(x.clone()),
    'half parameter': torch.nn.Parameter(x.half()),
  }


def _module(torch):
  """Returns a state dict with _metadata, and with a tied parameter."""
  torch.manual_seed(0)
  layers = [
    torch.nn.Embedding(7, 4),
    torch.nn.Linear(4, 7),
    torch.nn.LayerNorm(7),
  ]
  layers[1].weight = layers[0].weight
  return torch.nn.Sequential(*layers).state_dict()


def _large(torch):
  """Returns tensors of BERT-large's names and shapes."""
  d, f, v = 1024, 4096, 30522
  linear, norm = torch.nn.Linear, torch.nn.LayerNorm

  def tree(**modules):
    node = torch.nn.Module()
    for name, module in modules.items():
      node.add_module(name, module)
    return node

  def layer():
    return tree(
      attention=tree(
        self=tree(query=linear(d, d), key=linear(d, d), value=linear(d, d)),
        output=tree(dense=linear(d, d), LayerNorm=norm(d)),
      ),
      intermediate=tree(dense=linear(d, f)),
      output=tree(dense=linear(f, d), LayerNorm=norm(d)),
    )

  words = torch.nn.Embedding(v, d)
  decoder = linear(d, v)
  decoder.weight = words.weight
  encoder = tree(layer=torch.nn.ModuleList(layer() for _ in range(24)))
  bert = tree(
    embeddings=tree(
      word_embeddings=words,
      position_embeddings=torch.nn.Embedding(512, d),
      token_type_embeddings=torch.nn.Embedding(2, d),
      LayerNorm=norm(d),
    ),
    encoder=encoder,
    pooler=tree(dense=linear(d, d)),
  )
  transform = tree(dense=linear(d, d), LayerNorm=norm(d))
  heads = tree(
    predictions=tree(transform=transform, decoder=decoder),
    seq_relationship=linear(d, 2),
  )
  return tree(bert=bert, cls=heads).state_dict()


def check(folder) -> bool:
  """Reads the files here and compares; returns whether all are the same."""
  from bert_jax.weight_files import torch_bin

  good = True
  for file in sorted(os.listdir(folder)):
    name, form = os.path.splitext(file)
    if form[1:] not in _FORMATS:
      continue
    path = os.path.join(folder, file)
    start = time.perf_counter()
    found = torch_bin.read(path)
    seconds = time.perf_counter() - start
    with np.load(os.path.join(folder, f'{name}.npz')) as arrays:
      wrong = _differences(found, arrays)
    size = os.path.getsize(path) / 1e6
    good &= not wrong
    print(
      f'{name:<10} {form[1:]:<6} {len(found):>3} tensors {size:>8.1f} MB '
      f'{seconds:>6.2f} s  ' + (f'FAIL: {wrong}' if wrong else 'ok')
    )
  return good


def _differences(found, wanted):
  """Returns names found in one only, or whose type, shape or bits differ."""
  wrong = sorted(found.keys() ^ set(wanted.files))
  for name in found.keys() & set(wanted.files):
    a, b = found[name], wanted[name]
    if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
      wrong.append(name)
  return wrong


def measure(path):
  """Prints the values that the limits of the reader allow for."""
  with zipfile.ZipFile(path) as z:
    (name,) = (n for n in z.namelist() if n.endswith('/data.pkl'))
    pickle = z.read(name)
    directory = os.path.getsize(path) - z.start_dir
  opcodes = sum(1 for _ in pickletools.genops(pickle))
  print(
    f'BERT-large: a pickle of {len(pickle):,} bytes and {opcodes:,} opcodes, '
    f'a list of members of {directory:,} bytes'
  )


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--torch', metavar='PYTHON', help='Python with torch')
  parser.add_argument('--write', metavar='DIR', help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.write:
    write(args.write)
    return 0
  if not args.torch:
    parser.error('--torch is needed; name a Python that has torch.')
  with tempfile.TemporaryDirectory() as folder:
    subprocess.run(
      [args.torch, os.path.abspath(__file__), f'--write={folder}'], check=True
    )
    good = check(folder)
    measure(os.path.join(folder, 'BERT-large.zip'))
  print('PASS' if good else 'FAIL')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
