"""What accelerators can do, from the makers' data sheets.

Figures are per chip; jax shows a TPU v2, v3 or 7x chip as two devices.
"""

import dataclasses

_PRODUCT_FLOPS = 2 * 8192**3  # of the matrix product that `product_cycles` is

# Where neither clock nor cycles say it, this share of the peak is what the
# TPU compiler expects of a large product; it is 0.88 to 0.98 where they do.
_PRODUCT_SHARE = 0.93


@dataclasses.dataclass(frozen=True)
class Chip:
  """A chip.

  Attributes:
    name: short, lower case, as topology names begin.
    kinds: `device_kind` of its jax devices: of described ones, of real ones.
    flops: bfloat16 FLOP/s at peak, dense.
    hbm_bandwidth: bytes/s of memory.
    link_bandwidth: bytes/s to other chips, all links, both directions
      together; None where no figure is known.
    devices: jax devices.
    product_cycles: what the TPU compiler estimates for the product of two
      8192 x 8192 bfloat16 matrices on one device; None for a GPU.
    clock: Hz, which turns estimated cycles into seconds; None if not known.
  """

  name: str
  kinds: tuple[str, ...]
  flops: float
  hbm_bandwidth: float
  link_bandwidth: float | None
  devices: int = 1
  product_cycles: float | None = None
  clock: float | None = None

  @property
  def cycles_per_second(self) -> float:
    """Estimated cycles that a device works off in a second."""
    if self.clock is not None:
      return self.clock
    speed = _PRODUCT_SHARE * self.flops / self.devices
    return self.product_cycles * speed / _PRODUCT_FLOPS

  @property
  def product_flops(self) -> float:
    """FLOPs of a large product that a device does in an estimated cycle."""
    return _PRODUCT_FLOPS / self.product_cycles


# TPUs: Google Cloud's documentation; the memory bandwidth of v2 is from
# secondary sources; the links are those of a v3 (4 x 200) and a v4 (6 x 90).
# GPUs: NVIDIA's data sheets. The clocks are those at which the estimated
# cycles of a large product give 88 to 98 % of the peak.
# fmt: off
CHIPS = (
  Chip('v2', ('TPU v2',), 45e12, 700e9, None,
       devices=2, product_cycles=34.13e6, clock=0.70e9),
  Chip('v3', ('TPU v3',), 123e12, 900e9, 800e9,
       devices=2, product_cycles=17.32e6, clock=0.94e9),
  Chip('v4', ('TPU v4',), 275e12, 1200e9, 540e9,
       product_cycles=4.524e6, clock=1.05e9),
  Chip('v5e', ('TPU v5 lite', 'TPU v5e'), 197e12, 819e9, 400e9,
       product_cycles=9.557e6, clock=1.50e9),
  Chip('v5p', ('TPU v5', 'TPU v5p'), 459e12, 2765e9, 1200e9,
       product_cycles=4.652e6, clock=1.75e9),
  Chip('v6e', ('TPU v6 lite', 'TPU v6e'), 918e12, 1638e9, 800e9,
       product_cycles=2.978e6),
  Chip('tpu7x', ('TPU7x',), 2307e12, 7380e9, 1200e9,
       devices=2, product_cycles=2.605e6),
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


def named(name: str) -> Chip:
  """Returns the chip of a short name, which must be in the table."""
  return next(c for c in CHIPS if c.name == name)
