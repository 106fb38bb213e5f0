"""The values that `auto` stands for: what is fastest on a chip.

Unless stated otherwise, they are based on the compiler's estimates, see
`a71d0fb:benchmarks/tpu/aot.py`.
"""

import dataclasses

import jax
from jax.sharding import Mesh
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.hardware import chips
from bert_jax.model import parameters
from bert_jax.model.bert_config import BertConfig
from bert_jax.ops import (
  flash_attention,
  fused_attention,
  splash_attention,
  triton_calls,
)
from bert_jax.trainer.task import Compute, Objective, Phase

_HOPPER = 'h100', 'h100-pcie', 'h100-nvl', 'h200', 'h200-nvl'
# Compiler options by chip (`chips.Chip.name`).
_XLA_OPTIONS = {
  # 17.50 M cycles instead of 17.84 M (BASE, S=128, four layers), since more
  # inputs of the backward pass are prefetched.
  'v5e': {'xla_tpu_enforce_prefetch_fifo_order': 'true'},
  # cuBLAS computes all products, and adds the biases (`encoder.Dense`); and
  # numbers below 1e-38 become zero, as on TPUs, so 2^x is one instruction, not
  # four: on an H200, attention of LARGE takes 564 us instead of 599.
  **dict.fromkeys(
    _HOPPER, {'xla_gpu_enable_triton_gemm': 'false', 'xla_gpu_ftz': 'true'}
  ),
}
# Bytes; about the cache of a core.
_CPU_CACHE = 2**21


def read(config: config_dict.ConfigDict) -> Compute:
  """Returns how a config asks for its model to be computed."""
  how = Compute(**config.compute)
  few = config.task == 'pretraining' and config.objective.kind == 'mlm'
  if how.last_layer == 'auto' and not few:  # its heads read all tokens
    return dataclasses.replace(how, last_layer='all')
  return how


def apply(how: Compute, bert: BertConfig) -> BertConfig:
  """Returns a model that is computed as in training."""
  return dataclasses.replace(
    bert,
    vocab_multiple=parameters.VOCAB_MULTIPLE,
    attention=how.attention,
    separate_heads=how.heads == 'separate',
    flat_rows=how.heads == 'rows',
    remat=how.remat,
    last_layer=how.last_layer,
  )


def list_candidates(
  how: Compute,
  bert: BertConfig,
  device: jax.Device,
  model: int,
  length: int,
  rows: int = 1,
) -> list[Compute]:
  """Returns ways to compute a phase, as `resolve`, in the order to try them.

  The first is the fastest. If its kernels or options come from `auto`, the next
  one does without, in case this version of the compiler rejects them.
  """
  where = bert, device, model, length, rows
  ways = [resolve(how, *where)]
  plain = how
  if how.xla_options == 'auto':
    plain = dataclasses.replace(plain, xla_options='')
    ways.append(resolve(plain, *where))
  if how.attention == 'auto':
    chosen = _choose_plain(bert, device, length)
    plain = dataclasses.replace(plain, attention=chosen)
    ways.append(resolve(plain, *where))
  return list(dict.fromkeys(ways))


def resolve(
  how: Compute,
  bert: BertConfig,
  device: jax.Device,
  model: int,
  length: int,
  rows: int = 1,
) -> Compute:
  """Returns the fastest way in which nothing is `auto`.

  Args:
    device: one of the mesh; may be absent.
    model: devices over which a layer is split, `mesh.model`.
    length: S, tokens per sequence of the phase.
    rows: of a device's micro-batch.
  """
  changes = {}
  attention = how.attention
  if attention == 'auto':
    attention = _choose_attention(bert, device, model, length, rows)
  elif attention not in ('xla', 'recompute'):
    if cannot := _find_problem(attention, bert, device, model, length, rows):
      raise errors.UserError(
        f'compute.attention={attention} {cannot}; use compute.attention=auto.'
      )
  if how.heads == 'auto':
    changes['heads'] = _choose_heads(attention, device, model)
  elif how.heads != 'separate' and model > 1:
    raise errors.UserError(
      f'compute.heads={how.heads} cannot be split by mesh.model={model}; use '
      'compute.heads=auto.'
    )
  if how.last_layer == 'auto':
    changes['last_layer'] = _choose_last_layer(bert, device, model)
  if how.xla_options == 'auto':
    chip = chips.find(device.device_kind)
    given = _XLA_OPTIONS.get(chip.name, {}) if chip else {}
    changes['xla_options'] = ' '.join(f'{k}={v}' for k, v in given.items())
  return dataclasses.replace(how, attention=attention, **changes)


def tune(objective: Objective, mesh: Mesh, phase: Phase) -> Objective:
  """Returns an objective that is computed as `resolve` says."""
  where = locate(mesh, phase)
  how = resolve(objective.how, objective.bert, *where)
  return objective.computed_as(how, phase)


def locate(mesh: Mesh, phase: Phase) -> tuple[jax.Device, int, int, int]:
  """Returns the last arguments of `resolve`."""
  rows = phase.eval_batch_size // mesh.shape['data']
  return mesh.devices.flat[0], mesh.shape['model'], phase.seq_length, rows


def describe(how: Compute) -> str:
  """Describes in one line how a phase is computed, for the log."""
  return (
    f'attention {how.attention}, heads {how.heads}, remat {how.remat}, '
    f'last layer {how.last_layer}, XLA options {how.xla_options or "none"}'
  )


def find_advice(how: Compute, dtype: str, device: jax.Device) -> str | None:
  """Says how a run would be faster; None if nothing is known to be slow."""
  if device.platform == 'cpu':
    return None
  if dtype == how.matmul_precision == 'float32':
    return (
      f'products are in float32, which is slow on {device.device_kind}: '
      '--config.model.dtype=bfloat16 is faster (docs/speed.md)'
    )
  missing = None
  if (device.platform, dtype, how.attention) == ('gpu', 'bfloat16', 'auto'):
    missing = triton_calls.find_problem()
  return missing and f'WARNING: slow: compute.attention=flash {missing}'


def _choose_attention(bert, device, model, length, rows) -> str:
  """Returns the fastest attention that supports the model.

  On GPUs, `flash` moves only the activations, the others also scores in float32,
  ten times as much. NVIDIA's own kernels (`jax.nn.dot_product_attention` by cuDNN)
  have no dropout for us, and are no faster on an H200.
  """
  for way in ('splash' if bert.modern else 'fused', 'flash'):
    if not _find_problem(way, bert, device, model, length, rows):
      return way
  return _choose_plain(bert, device, length)


def _choose_plain(bert, device, length) -> str:
  """Returns how attention is computed without kernels.

  Measured on a CPU (`a71d0fb:benchmarks/measure/attention.py`): with
  `recompute`, a block of LARGE at length 512 takes 0.76 to 1.02 of the time,
  since blocks stay in the cache. On GPUs from length 256 on, the weights take
  more memory than all else that a layer keeps. On TPUs it is slower: BASE on
  v3:2x2 would take 390 ms at length 512 instead of 350. With two heads of 64, a
  window of 64 and no dropout, a CPU takes 0.7 of the time at 256 and 0.3 at 512.
  """
  least = 1024 if device.platform == 'tpu' else 256
  if device.platform == 'gpu' or bert.modern:
    return 'recompute' if length >= least else 'xla'
  scores = 4 * bert.num_heads * length**2
  cpu = device.platform == 'cpu'
  return 'recompute' if cpu and scores > _CPU_CACHE else 'xla'


def _choose_heads(attention, device, model) -> str:
  """Returns the shape of products: separate, flat or rows.

  `mesh.model` needs separate heads. Without our kernels they are faster on
  TPUs: 21.9 M estimated cycles instead of 23.2 M (v3, BASE, S=128, two layers).
  On CPUs XLA would transpose their gradients in memory, unless rows have one
  axis, too: a step of BERT-Tiny is a fifth faster with it. On GPUs it is what
  lets cuBLAS add the biases; on a v5e:2x2, BASE would take 6 % longer.
  """
  tpu = device.platform == 'tpu'
  if model > 1 or (tpu and attention != 'fused'):
    return 'separate'
  return 'flat' if tpu else 'rows'


def _choose_last_layer(bert, device, model) -> str:
  """Returns where the last layer is computed: all or predicted.

  On a CPU, two layers with 20 predictions in 64 tokens take 0.88 of the time.
  On other devices it was not measured. Dropout would draw other random numbers.
  """
  drops = bert.dropout or bert.attention_dropout
  on_cpu = device.platform == 'cpu'
  return 'predicted' if model == 1 and on_cpu and not drops else 'all'


def _find_problem(attention, bert, device, model, length, rows) -> str | None:
  """Says why kernels cannot compute attention; None if they can."""
  platform = 'gpu' if attention == 'flash' else 'tpu'
  if device.platform != platform:
    return f'runs on {platform.upper()}s, not on {device.platform}'
  # Mosaic does not support bfloat16 products on these chips.
  if device.device_kind in ('TPU v2', 'TPU v3'):
    return f'does not run on a {device.device_kind}'
  if model > 1:
    return f'cannot be split by mesh.model={model}'
  heads, size = bert.num_heads, bert.head_size
  found: str | None
  if attention != 'flash' and bert.modern == (attention == 'fused'):
    found = f'model.body={bert.body}'
  elif attention == 'splash' and bert.causal:
    found = f'objective.kind={bert.kind}'
  elif attention == 'splash' and bert.attention_dropout:
    found = f'model.attention_dropout={bert.attention_dropout:g}'
  elif attention == 'splash':
    found = splash_attention.unsupported(length, size)
  elif attention == 'fused':
    found = fused_attention.unsupported(length, heads, size, bert.dtype)
  elif missing := triton_calls.find_problem():
    return missing
  elif bert.dtype != 'bfloat16':  # it would not fit the registers
    found = f'model.dtype={bert.dtype}'
  else:
    found = flash_attention.unsupported(length, size, heads, rows)
  return f'cannot do {found}' if found else None
