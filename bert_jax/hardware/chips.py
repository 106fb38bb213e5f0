"""Figures of accelerators from the makers' data sheets, and what they cost.

Figures are per chip; in jax, a TPU v2, v3 or 7x chip is two devices.
"""

import dataclasses
import datetime

_PRODUCT_FLOPS = 2 * 8192**3  # of the matrix product of `product_cycles`


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
  # The compiler's estimate in cycles for the product of two bfloat16 matrices of
  # 8192 x 8192 on one device.
  product_cycles: float | None = None
  cycles_per_second: float | None = None  # converts estimated cycles
  clock_published: bool = True  # otherwise it is inferred from `flops`

  # Of GPUs.
  memory: int | None = None  # bytes; a TPU's compiler knows it
  capability: str | None = None  # NVIDIA's compute capability, such as '9.0'
  multiprocessors: int | None = None
  cache: int | None = None  # bytes of the second level
  tensorfloat32_flops: float | None = None  # peak FLOP/s, dense
  float32_flops: float | None = None  # peak FLOP/s of float32 proper

  def for_products(self, dtype: str, precision: str) -> 'Chip':
    """Returns the chip with the peak of products of a type as `flops`.

    Args:
      dtype: type of the activations, `model.dtype`.
      precision: what float32 may be rounded to, `compute.matmul_precision`.
    """
    if dtype == 'bfloat16' or self.float32_flops is None:
      return self
    rounded = precision in ('tensorfloat32', 'bfloat16')
    peak = self.tensorfloat32_flops if rounded else self.float32_flops
    return dataclasses.replace(self, flops=peak)

  @property
  def product_flops(self) -> float:
    """FLOPs per estimated cycle of a device in a large matrix product."""
    return _PRODUCT_FLOPS / self.product_cycles

  @property
  def link_speed(self) -> float:
    """Bytes/s of one link of a TPU, in one direction."""
    return self.link_bandwidth / self.links / 2


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
# Clocks: v2 to v4 from the two papers, 1.50 GHz for v5e from the scaling book.
# v5p, v6e and tpu7x: the peak divided by the matrix units' FLOPs per cycle. A
# unit of 256 x 256 is assumed to do 2 x 256 x 256 products per cycle: with half
# of that, v6e would need 3.5 GHz. For tpu7x this gives 2.2 GHz. Google's
# microbenchmarks (AI-Hypercomputer/accelerator-microbenchmarks, Ironwood) have
# measured 893 and 950 TFLOP/s a device for products of 4096 and 16384, for
# which the compiler's cycles need 2.06 and 2.14 GHz
# (`a71d0fb:benchmarks/tpu/estimate_checks.py`).
# fmt: off
_TPUS = (
  Chip('v2', ('TPU v2',), 45e12, 700e9, 496e9, devices=2, links=4,
       network_bandwidth=6.25e9, product_cycles=34.13e6,
       cycles_per_second=0.70e9),
  Chip('v3', ('TPU v3',), 123e12, 900e9, 560e9, devices=2, links=4,
       network_bandwidth=6.25e9, product_cycles=17.32e6,
       cycles_per_second=0.94e9),
  Chip('v4', ('TPU v4',), 275e12, 1200e9, 540e9, links=6,
       network_bandwidth=6.25e9, product_cycles=4.524e6,
       cycles_per_second=1.05e9),
  Chip('v5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 819e9, 400e9, links=4,
       network_bandwidth=3.125e9, product_cycles=9.557e6,
       cycles_per_second=1.50e9),
  Chip('v5p', ('TPU v5', 'TPU v5p'), 459e12, 2765e9, 1200e9, links=6,
       network_bandwidth=6.25e9, product_cycles=4.652e6,
       cycles_per_second=1.75e9, clock_published=False),
  Chip('v6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 1638e9, 800e9, links=4,
       network_bandwidth=12.5e9, product_cycles=2.978e6,
       cycles_per_second=1.75e9, clock_published=False),
  Chip('tpu7x', ('TPU7x',), 2307e12, 7380e9, 1200e9, devices=2, links=6,
       network_bandwidth=6.25e9, product_cycles=2.605e6,
       cycles_per_second=2.20e9, clock_published=False),
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
