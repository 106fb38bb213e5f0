"""Performance figures of accelerators, from the makers' data sheets.

Figures are per chip; in jax, a TPU v2, v3 or 7x chip is two devices.
"""

import dataclasses

_PRODUCT_FLOPS = 2 * 8192**3  # of the matrix product of `product_cycles`


@dataclasses.dataclass(frozen=True)
class Chip:
  """A chip.

  Attributes:
    name: short name in lower case, with which topology names begin.
    kinds: `device_kind` of its jax devices, as described or as real devices.
    flops: peak bfloat16 FLOP/s, dense.
    hbm_bandwidth: memory bandwidth, bytes/s.
    link_bandwidth: bytes/s to other chips, sum of all links and both
      directions.
    devices: jax devices per chip.
    links: links to neighbours, for TPUs.
    network_bandwidth: bytes/s in each direction to other slices, for TPUs.
    product_cycles: the TPU compiler's estimate in cycles for the product of two
      8192 x 8192 bfloat16 matrices on one device; None for a GPU.
    unit_flops: FLOPs per cycle of the chip's matrix units; None for a GPU.
    cycles_per_second: clock rate, to convert estimated cycles into seconds;
      None for a GPU.
    clock_published: whether the clock rate is published; otherwise it is
      `flops` / `unit_flops`.
  """

  name: str
  kinds: tuple[str, ...]
  flops: float
  hbm_bandwidth: float
  link_bandwidth: float
  devices: int = 1
  links: int = 0
  network_bandwidth: float | None = None
  product_cycles: float | None = None
  unit_flops: int | None = None
  cycles_per_second: float | None = None
  clock_published: bool = True

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
# 2020, table 3). GPUs: NVIDIA's data sheets.
#
# The network between slices: 6.4 and 25.6 Tbit/s for a pod of 256 v5e and v6e,
# 50 Gbit/s for a v5p chip (the same documentation); 25 GB/s for a host of
# four chips elsewhere (the scaling book).
#
# Clocks: those of v2 to v4 are in the two papers, 1.50 GHz for v5e in the
# scaling book. v5p, v6e and tpu7x: the peak divided by the matrix units' FLOPs
# per cycle. A unit of 256 x 256 is assumed to do 2 x 256 x 256 products per
# cycle: with half of that, v6e would need 3.5 GHz. For tpu7x this gives 2.2
# GHz. Google's microbenchmarks
# (AI-Hypercomputer/accelerator-microbenchmarks, Ironwood) have measured 893
# and 950 TFLOP/s a device for products of 4096 and 16384, for which the
# compiler's cycles need 2.06 and 2.14 GHz (`benchmarks/tpu/estimate_checks.py`).
# fmt: off
CHIPS = (
  Chip('v2', ('TPU v2',), 45e12, 700e9, 496e9, devices=2, links=4,
       network_bandwidth=6.25e9, product_cycles=34.13e6,
       unit_flops=2 * 2 * 128**2, cycles_per_second=0.70e9),
  Chip('v3', ('TPU v3',), 123e12, 900e9, 560e9, devices=2, links=4,
       network_bandwidth=6.25e9, product_cycles=17.32e6,
       unit_flops=4 * 2 * 128**2, cycles_per_second=0.94e9),
  Chip('v4', ('TPU v4',), 275e12, 1200e9, 540e9, links=6,
       network_bandwidth=6.25e9, product_cycles=4.524e6,
       unit_flops=8 * 2 * 128**2, cycles_per_second=1.05e9),
  Chip('v5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 819e9, 400e9, links=4,
       network_bandwidth=3.125e9, product_cycles=9.557e6,
       unit_flops=4 * 2 * 128**2, cycles_per_second=1.50e9),
  Chip('v5p', ('TPU v5', 'TPU v5p'), 459e12, 2765e9, 1200e9, links=6,
       network_bandwidth=6.25e9, product_cycles=4.652e6,
       unit_flops=8 * 2 * 128**2, cycles_per_second=1.75e9,
       clock_published=False),
  Chip('v6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 1638e9, 800e9, links=4,
       network_bandwidth=12.5e9, product_cycles=2.978e6,
       unit_flops=2 * 2 * 2 * 256**2, cycles_per_second=1.75e9,
       clock_published=False),
  Chip('tpu7x', ('TPU7x',), 2307e12, 7380e9, 1200e9, devices=2, links=6,
       network_bandwidth=6.25e9, product_cycles=2.605e6,
       unit_flops=4 * 2 * 2 * 256**2, cycles_per_second=2.20e9,
       clock_published=False),
  Chip('a100-40gb', ('NVIDIA A100-SXM4-40GB',), 312e12, 1555e9,
       600e9),
  Chip('a100-80gb', ('NVIDIA A100-SXM4-80GB',), 312e12, 2039e9,
       600e9),
  Chip('h100', ('NVIDIA H100 80GB HBM3',), 989e12, 3350e9, 900e9),
  Chip('h200', ('NVIDIA H200',), 989e12, 4800e9, 900e9),
)
# fmt: on


def find(device_kind: str) -> Chip | None:
  """Returns the chip of a jax device; None if it is not in the table."""
  return next((c for c in CHIPS if device_kind in c.kinds), None)


def get(name: str) -> Chip:
  """Returns the chip with a short name, which must be in the table."""
  return next(c for c in CHIPS if c.name == name)
