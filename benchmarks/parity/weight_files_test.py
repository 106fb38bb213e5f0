"""Files of torch.save are read bit for bit."""

import pickletools
import time
import zipfile

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
