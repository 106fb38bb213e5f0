"""A stand-in for torch, which tests do not need: its files are numpy's."""

import sys

import numpy as np

bfloat16 = 'bfloat16'


class Tensor:
  """Has of a tensor what is called; bfloat16 has no array, as in torch."""

  def __init__(self, array, dtype='float32', attached=True):
    self.array, self.dtype, self.attached = array, dtype, attached

  def float(self):
    return Tensor(self.array, 'float32', self.attached)

  def detach(self):
    return Tensor(self.array, self.dtype, False)

  def numpy(self):
    assert self.dtype != bfloat16 and not self.attached
    return self.array


calls = []  # (path, arguments) of each


def load(path, **given):
  calls.append((path, given))
  with np.load(path) as file:
    return {name: Tensor(x) for name, x in file.items()}


def save(path, tensors):
  with open(path, 'wb') as file:
    np.savez(file, **tensors)


def install(monkeypatch, **names):
  """Makes this module `torch`, with other values of some names."""
  calls.clear()
  this = sys.modules[__name__]
  monkeypatch.setitem(sys.modules, 'torch', this)
  for name, value in names.items():
    monkeypatch.setattr(this, name, value)
