"""The values that `auto` stands for: what is fastest on a chip.

Unless stated otherwise, they are based on the compiler's estimates, see
`a71d0fb:benchmarks/tpu/aot.py`.
"""

import dataclasses

import jax
from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config import fields
from bert_jax.hardware import chips
from bert_jax.model import bert_config, parameters
from bert_jax.ops import flash_attention, fused_attention

_HOPPER = 'h100', 'h100-pcie', 'h100-nvl', 'h200', 'h200-nvl'
# Compiler options by chip (`chips.Chip.name`).
_XLA_OPTIONS = {
  # 17.50 M cycles instead of 17.84 M (BASE, S=128, four layers), since more
  # inputs of the backward pass are prefetched. No change above 0.2 % for S=512,
  # for LARGE, on v4 and on v5p.
  'v5e': {'xla_tpu_enforce_prefetch_fifo_order': 'true'},
  # The first: cuBLAS computes all products, and adds the biases
  # (`encoder.Dense`), which on an H200 takes 61 us less for the queries, keys and
  # values of 16,384 tokens of LARGE. The second: numbers below 1e-38 become zero,
  # as on TPUs, so 2^x is one instruction instead of four, and attention of these
  # tokens, in rows of 512, takes 564 us instead of 599, forward and backward.
  **dict.fromkeys(
    _HOPPER, {'xla_gpu_enable_triton_gemm': 'false', 'xla_gpu_ftz': 'true'}
  ),
}
# Bytes; about the cache of a core.
_CPU_CACHE = 2**21


def list_candidates(
  config: config_dict.ConfigDict, device: jax.Device, length: int
) -> list:
  """Returns configs to compile a phase with, in the order to try them.

  The first is the fastest. If its kernels or options come from `auto`, the next
  one does without, in case this version of the compiler rejects them.

  Args and raises: as `resolve`.
  """
  found = [resolve(config, device, length)]
  plain = config.copy_and_resolve_references()
  if config.compute.xla_options == 'auto':
    plain.compute.xla_options = ''
    found.append(resolve(plain, device, length))
  if config.compute.attention == 'auto':
    plain.compute.attention = _choose_plain(config, device, length)
    found.append(resolve(plain, device, length))
  return [c for i, c in enumerate(found) if not i or c != found[i - 1]]


def resolve(config: config_dict.ConfigDict, device: jax.Device, length: int):
  """Returns a config in which no field of `compute` is auto.

  Args:
    device: one of the mesh; may be absent.
    length: S, tokens per sequence of the phase.
  """
  config = config.copy_and_resolve_references()
  compute = config.compute
  if compute.attention == 'auto':
    compute.attention = _choose_attention(config, device, length)
  elif compute.attention not in ('xla', 'recompute'):
    cannot = _find_problem(compute.attention, config, device, length)
    if cannot:
      raise errors.UserError(
        f'compute.attention={compute.attention} {cannot}; use '
        'compute.attention=auto.'
      )
  if compute.heads == 'auto':
    compute.heads = _choose_heads(config, device)
  elif compute.heads != 'separate' and config.mesh.model > 1:
    raise errors.UserError(
      f'compute.heads={compute.heads} cannot be split by '
      f'mesh.model={config.mesh.model}; use compute.heads=auto.'
    )
  if compute.last_layer == 'auto':
    compute.last_layer = _choose_last_layer(config, device)
  if compute.xla_options == 'auto':
    chip = chips.find(device.device_kind)
    options = _XLA_OPTIONS.get(chip.name, {}) if chip else {}
    compute.xla_options = ' '.join(f'{k}={v}' for k, v in options.items())
  return config


def model_config(config: config_dict.ConfigDict) -> bert_config.BertConfig:
  """Returns the model of a config from `resolve`, computed as in training."""
  return dataclasses.replace(
    fields.model_config(config),
    vocab_multiple=parameters.VOCAB_MULTIPLE,
    attention=config.compute.attention,
    separate_heads=config.compute.heads == 'separate',
    flat_rows=config.compute.heads == 'rows',
    remat=config.compute.remat,
    scan_layers=config.compute.scan_layers,
    last_layer=config.compute.last_layer,
  )


def describe(config: config_dict.ConfigDict) -> str:
  """Describes in one line how a resolved config computes, for the log."""
  c = config.compute
  layers = 'scanned' if c.scan_layers else 'unrolled'
  return (
    f'attention {c.attention}, heads {c.heads}, remat {c.remat}, '
    f'layers {layers}, last layer {c.last_layer}, XLA options {c.xla_options or "none"}'
  )


def find_advice(config, device) -> str | None:
  """Says how a run's products would be faster; None if they are not slow."""
  slow = config.model.dtype == config.compute.matmul_precision == 'float32'
  if device.platform == 'cpu' or not slow:
    return None
  return (
    f'products are in float32, which is slow on {device.device_kind}: '
    '--config.model.dtype=bfloat16 is faster (docs/speed.md)'
  )


def _choose_attention(config, device, length) -> str:
  """Returns the fastest attention that supports the config.

  On GPUs by count of bytes: `flash` moves only the activations, `xla` and
  `recompute` also scores in float32, about ten times. In LARGE, the scores are
  0.13 GB a layer for 128 rows of 128 tokens, and 0.54 for 32 of 512. NVIDIA's own
  kernels (`jax.nn.dot_product_attention` by cuDNN) are no faster on an H200: without
  dropout, which they do not have for us, 329 us forward and backward for the former
  rows and 529 for the latter, `flash` 226 and 521 with the gradients of biases.
  """
  for way in ('fused', 'flash'):
    if not _find_problem(way, config, device, length):
      return way
  return _choose_plain(config, device, length)


def _choose_plain(config, device, length) -> str:
  """Returns how attention is computed without kernels.

  Measured on a CPU (`a71d0fb:benchmarks/measure/attention.py`): with
  `recompute`, a block of LARGE at length 512 takes 0.76 to 1.02 of the time, of
  BASE at 256 0.98, since blocks stay in the cache; if a whole row's scores fit
  there, it may be slower. On GPUs from length 256 on, the weights take more
  memory than all else that a layer keeps. On TPUs it is slower: by the
  compiler's estimate, BASE on v3:2x2 takes 390 ms at length 512 instead of 350
  ms (and needs 4.2 GiB instead of 11.6).
  """
  if device.platform == 'cpu':
    recompute = 4 * config.model.num_heads * length**2 > _CPU_CACHE
  else:
    recompute = device.platform == 'gpu' and length >= 256
  return 'recompute' if recompute else 'xla'


def _choose_heads(config, device) -> str:
  """Returns the shape of products: separate, flat or rows.

  `mesh.model` needs separate heads. Without our kernels they are faster on
  TPUs: 21.9 M estimated cycles instead of 23.2 M (v3, BASE, S=128, two layers).
  On CPUs they are slower: XLA would transpose the gradients of such kernels,
  and each pass of the optimizer would read them transposed. For the gradient of
  a kernel it also transposes the output's gradient, in memory, unless rows have
  one axis; a step of BERT-Tiny is a fifth faster with one axis. On a v5e:2x2,
  BASE at length 128 would take 6 % more estimated cycles with it. On GPUs it is
  what lets cuBLAS add the biases.
  """
  tpu = device.platform == 'tpu' and config.compute.attention != 'fused'
  if config.mesh.model > 1 or tpu:
    return 'separate'
  return 'flat' if device.platform == 'tpu' else 'rows'


def _choose_last_layer(config, device) -> str:
  """Returns where the last layer is computed: all or predicted.

  On a CPU, two layers with 20 predictions in 64 tokens take 0.88 of the time
  with a hidden size of 128, 0.86 with 192. On other devices it was not measured.
  Dropout would draw other random numbers.
  """
  model = config.model
  drops = model.dropout or model.attention_dropout
  plain = config.mesh.model == 1 and not config.compute.scan_layers
  few = config.task == 'pretraining' and config.objective.kind == 'mlm'
  on_cpu = device.platform == 'cpu'
  return 'predicted' if few and plain and on_cpu and not drops else 'all'


def _find_problem(attention, config, device, length) -> str | None:
  """Says why kernels cannot compute attention; None if they can."""
  platform = 'tpu' if attention == 'fused' else 'gpu'
  if device.platform != platform:
    return f'runs on {platform.upper()}s, not on {device.platform}'
  # Mosaic does not support bfloat16 products on these chips.
  if device.device_kind in ('TPU v2', 'TPU v3'):
    return f'does not run on a {device.device_kind}'
  if config.mesh.model > 1:
    return f'cannot be split by mesh.model={config.mesh.model}'
  m = config.model
  size = m.hidden_size // m.num_heads
  if attention == 'fused':
    found = fused_attention.unsupported(length, m.num_heads, size, m.dtype)
  elif m.dtype != 'bfloat16':  # it would not fit the registers
    found = f'model.dtype={m.dtype}'
  else:
    found = flash_attention.unsupported(length, size)
  return f'cannot do {found}' if found else None
