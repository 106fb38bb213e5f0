"""Figures of accelerators from the makers' data sheets, and what they cost.

Figures are per chip; in jax, a TPU v2, v3 or 7x chip is two devices.
"""

import dataclasses
import datetime
import math

import numpy as np

# Sides of two square bfloat16 matrices, and the TFLOP/s that one TPU7x device
# reaches in their product (Google, AI-Hypercomputer/accelerator-microbenchmarks,
# Ironwood/Ironwood_Microbenchmarks_readme.md, gemm_multiple_run).
# fmt: off
_PRODUCTS = (
  (128, 2.59), (256, 18.29), (512, 105.1), (1024, 349.7), (2048, 679.3),
  (4096, 892.9), (16384, 950.1), (32768, 956.4),
)
# fmt: on
_PRODUCTS_PEAK = 2307e12 / 2  # FLOP/s of that device
# Passes of a TPU's bfloat16 products that one of float32 takes, by what it may
# be rounded to (docs/speed.md).
_PASSES = {'float32': 6, 'tensorfloat32': 3, 'bfloat16': 1}


@dataclasses.dataclass(frozen=True)
class Chip:
  """A chip."""

  name: str  # in lower case, with which topology names begin
  kinds: tuple[str, ...]  # `device_kind` of its jax devices, described or real
  flops: float  # peak bfloat16 FLOP/s, dense
  hbm_bandwidth: float  # bytes/s of the memory
  link_bandwidth: float  # bytes/s to other chips, all links, both directions
  devices: int = 1  # jax devices per chip

  # Of TPUs.
  links: int = 0  # to neighbours
  network_bandwidth: float | None = None  # bytes/s each way to other slices
  # A product whose speed on this chip is published: the side of its two square
  # bfloat16 matrices, and FLOP/s of one device.
  product: tuple[int, float] | None = None
  # What whole steps are expected to reach, at worst and at best, of the speed of
  # products alone; of a GPU, of its peak.
  reached: tuple[float, float] = (0.5, 0.85)

  # Of GPUs.
  memory: int | None = None  # bytes; a TPU's compiler knows it
  capability: str | None = None  # NVIDIA's compute capability, such as '9.0'
  multiprocessors: int | None = None
  cache: int | None = None  # bytes of the second level
  tensorfloat32_flops: float | None = None  # peak FLOP/s, dense
  float32_flops: float | None = None  # peak FLOP/s of float32 proper

  def for_products(self, dtype: str, precision: str) -> 'Chip':
    """Returns the chip with the peak of products of a type as `flops`.

    Float32 may be rounded to `precision`, `compute.matmul_precision`.
    """
    if dtype == 'bfloat16':
      return self
    if self.float32_flops is None:
      return dataclasses.replace(self, flops=self.flops / _PASSES[precision])
    rounded = precision in ('tensorfloat32', 'bfloat16')
    peak = self.tensorfloat32_flops if rounded else self.float32_flops
    return dataclasses.replace(self, flops=peak)

  def find_product_share(self, size: float) -> float:
    """Returns the share of a TPU's peak that a product reaches by itself.

    Products that take as long at the peak are taken to reach as much of it on
    all TPUs, but for what `product` says of this one. `size` is the cube root of
    the product's three lengths.
    """
    share = _find_share(size, self.flops / self.devices)
    if self.product is not None:
      side, flops = self.product
      peak = get(self.name).flops / self.devices
      share *= flops / peak / _find_share(side, peak)
    return share

  @property
  def link_speed(self) -> float:
    """Bytes/s of one link of a TPU, in one direction."""
    return self.link_bandwidth / self.links / 2


def _find_share(size, peak) -> float:
  """Returns what TPU7x reaches of its peak in a product that takes as long."""
  size *= (_PRODUCTS_PEAK / peak) ** (1 / 3)
  sides, speeds = zip(*_PRODUCTS, strict=True)
  speed = np.interp(math.log(size), np.log(sides), speeds)
  return float(speed) * 1e12 / _PRODUCTS_PEAK


# Peak, memory and links: Google Cloud's TPU documentation (pages v4, v5e, v5p,
# v6e, tpu7x, read in 2026); the links of v4 from the scaling book (jax-ml,
# tpus.md: 45 GB/s each way), which has the same as the documentation for
# v5e, v5p and v6e. It has 100 GB/s for v3, where the paper on TPU v4 (ISCA
# 2023, table 4) has 70: the lower one is taken. v2: 496 Gbit/s (CACM 63(7),
# 2020, table 3).
#
# The network between slices: 6.4 and 25.6 Tbit/s for a pod of 256 v5e and v6e,
# 50 Gbit/s for a v5p chip (the same documentation); 25 GB/s for a host of
# four chips elsewhere (the scaling book).
#
# Products: v6e and tpu7x by Google's microbenchmarks (see `_PRODUCTS`). What steps
# reach is a judgement, by published runs of other programs and by the compiler's
# cycles of ours (docs/preflight.md): v6e and tpu7x have less for what is no product.
# fmt: off
_TPUS = (
  Chip('v2', ('TPU v2',), 45e12, 700e9, 496e9, devices=2, links=4,
       network_bandwidth=6.25e9),
  Chip('v3', ('TPU v3',), 123e12, 900e9, 560e9, devices=2, links=4,
       network_bandwidth=6.25e9),
  Chip('v4', ('TPU v4',), 275e12, 1200e9, 540e9, links=6,
       network_bandwidth=6.25e9),
  Chip('v5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 819e9, 400e9, links=4,
       network_bandwidth=3.125e9),
  Chip('v5p', ('TPU v5', 'TPU v5p'), 459e12, 2765e9, 1200e9, links=6,
       network_bandwidth=6.25e9),
  Chip('v6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 1638e9, 800e9, links=4,
       network_bandwidth=12.5e9, product=(8192, 827e12), reached=(0.33, 0.7)),
  Chip('tpu7x', ('TPU7x',), 2307e12, 7380e9, 1200e9, devices=2, links=6,
       network_bandwidth=6.25e9, product=(4096, 892.9e12), reached=(0.33, 0.7)),
)
# fmt: on


def _gpu(name, kind, memory, bandwidth, link, peaks, capability, cores, cache):
  """Returns a GPU, from GiB, GB/s, GB/s, three times TFLOP/s, and MiB of cache."""
  bfloat16, tf32, float32 = peaks
  return Chip(
    name,
    (f'NVIDIA {kind}',),
    bfloat16 * 1e12,
    bandwidth * 1e9,
    link * 1e9,
    memory=int(memory * 2**30),
    capability=capability,
    multiprocessors=cores,
    reached=(0.25, 0.65),
    cache=cache * 2**20,
    tensorfloat32_flops=tf32 * 1e12,
    float32_flops=float32 * 1e12,
  )


# NVIDIA's data sheets of each card and the white papers of its generation
# (GA102 for RTX 3090 and A6000, Ada, Blackwell), as known on 2026-11-22; none
# was measured here. Dense rates with sums in float32: data sheets that give
# rates "with sparsity" have twice as much. `kind` is what nvidia-smi calls it,
# and jax after "NVIDIA". The link is NVLink or, without it, PCIe. ECC, which
# L4, L40S and A10 come with turned on, takes a sixteenth of their GDDR6:
# nvidia-smi shows 23,034 MiB of an L4 and 46,068 MiB of an L40S.
# fmt: off
_GPUS = (
  # name, kind, GiB, memory GB/s, link GB/s, (bfloat16, TF32, float32 TFLOP/s),
  # compute capability, multiprocessors, MiB of cache
  _gpu('a100-40gb', 'A100-SXM4-40GB', 40, 1555, 600, (312, 156, 19.5),
       '8.0', 108, 40),
  _gpu('a100-80gb', 'A100-SXM4-80GB', 80, 2039, 600, (312, 156, 19.5),
       '8.0', 108, 40),
  _gpu('a100-pcie-40gb', 'A100-PCIE-40GB', 40, 1555, 64, (312, 156, 19.5),
       '8.0', 108, 40),
  _gpu('a100-pcie-80gb', 'A100 80GB PCIe', 80, 1935, 64, (312, 156, 19.5),
       '8.0', 108, 40),
  _gpu('h100', 'H100 80GB HBM3', 80, 3350, 900, (989, 494.7, 67),
       '9.0', 132, 50),
  _gpu('h100-pcie', 'H100 PCIe', 80, 2000, 128, (756, 378, 51),
       '9.0', 114, 50),
  _gpu('h100-nvl', 'H100 NVL', 94, 3900, 128, (835, 417.5, 60),
       '9.0', 132, 50),
  _gpu('h200', 'H200', 141, 4800, 900, (989, 494.7, 67),
       '9.0', 132, 60),
  _gpu('h200-nvl', 'H200 NVL', 141, 4800, 128, (835, 417.5, 60),
       '9.0', 132, 60),
  _gpu('b200', 'B200', 180, 7700, 1800, (2250, 1125, 75),
       '10.0', 148, 126),
  _gpu('l4', 'L4', 22.5, 300, 64, (121, 60, 30.3),
       '8.9', 58, 48),
  _gpu('l40s', 'L40S', 45, 864, 64, (362, 183, 91.6),
       '8.9', 142, 96),
  _gpu('a10', 'A10', 22.5, 600, 64, (125, 62.5, 31.2),
       '8.6', 72, 6),
  _gpu('a6000', 'RTX A6000', 48, 768, 64, (154.8, 77.4, 38.7),
       '8.6', 84, 6),
  _gpu('rtx6000-ada', 'RTX 6000 Ada Generation', 48, 960, 64, (364.2, 182.1, 91.1),
       '8.9', 142, 96),
  _gpu('rtx3090', 'GeForce RTX 3090', 24, 936, 64, (71, 35.6, 35.6),
       '8.6', 82, 6),
  _gpu('rtx4080', 'GeForce RTX 4080', 16, 717, 64, (97.5, 48.7, 48.7),
       '8.9', 76, 64),
  _gpu('rtx4090', 'GeForce RTX 4090', 24, 1008, 64, (165.2, 82.6, 82.6),
       '8.9', 128, 72),
  _gpu('rtx5090', 'GeForce RTX 5090', 32, 1792, 128, (209.5, 104.8, 104.8),
       '12.0', 170, 96),
)
# fmt: on
CHIPS = (*_TPUS, *_GPUS)

# Google Cloud's list prices on demand in its cheapest US region, where one is
# published. Other sources and contracts differ by up to four times. No list
# price of TPU7x was found (2026-11-22): give --price.
PRICES_AS_OF = datetime.date(2025, 6, 1)
USD_PER_CHIP_HOUR = {
  'v2': 1.13,
  'v3': 2.00,
  'v4': 3.22,
  'v5e': 1.20,
  'v5p': 4.20,
  'v6e': 2.70,
  'a100-40gb': 3.67,
  'a100-80gb': 5.07,
  'h100': 11.06,
}


def find(device_kind: str) -> Chip | None:
  """Returns the chip of a jax device; None if it is not in the table."""
  return next((c for c in CHIPS if device_kind in c.kinds), None)


def get(name: str) -> Chip:
  """Returns the chip with a short name, which must be in the table."""
  return next(c for c in CHIPS if c.name == name)
