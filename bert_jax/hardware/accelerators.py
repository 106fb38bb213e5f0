"""Parses names of TPU slices and GPUs into what the compiler needs."""

import dataclasses
import difflib
import math
import re

from bert_jax import errors
from bert_jax.hardware import chips

# {dimensions: {number of chips: the usual grid of a slice}}.
_BOUNDS = {
  2: {4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8)}
  | {128: (8, 16), 256: (16, 16), 512: (16, 32), 1024: (32, 32)},
  3: {4: (2, 2, 1), 8: (2, 2, 2), 16: (2, 2, 4), 32: (2, 4, 4)}
  | {64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}
  | {1024: (8, 8, 16), 2048: (8, 16, 16), 4096: (16, 16, 16)},
}
_SINGLE = {1: (1, 1), 8: (2, 4)}  # v5e and v6e, on one host


@dataclasses.dataclass(frozen=True)
class _Family:
  cloud: str  # first part of cloud accelerator types
  dimensions: int  # of the grid of chips
  cores: int  # per chip, as counted in accelerator types
  most: int  # chips of the largest slice
  # An axis whose length is a multiple of this closes to a ring; in three
  # dimensions only if all axes do.
  ring: int
  # {chips: grid} of slices on one host with other than four chips.
  single: dict = dataclasses.field(default_factory=dict)
  options: dict = dataclasses.field(default_factory=dict)  # of the compiler

  @property
  def bounds(self) -> dict[int, tuple[int, ...]]:
    """Returns {chips: grid}, the usual one for each number."""
    grids = {**_BOUNDS[self.dimensions], **self.single}
    return {n: grids[n] for n in sorted(grids) if n <= self.most}


# Rings: only in whole pods on v2 and v3, 16 chips along an axis on v5e and v6e,
# cubes of 4 x 4 x 4 joined by optical switches on the others (the scaling book
# of jax-ml, tpus.md; Google Cloud's pages on v4 and v5p).
_FAMILIES = {
  # A single board of v2 or v3 is a 2x2; pods begin with 4x4.
  'v2': _Family('v2', 2, 2, 256, 16),
  'v3': _Family('v3', 2, 2, 1024, 32),
  # Otherwise each core is a device, and meshes are rejected.
  'v4': _Family('v4', 3, 2, 4096, 4, options={'chip_config_name': 'megacore'}),
  'v5e': _Family('v5litepod', 2, 1, 256, 16, _SINGLE),
  'v5p': _Family('v5p', 3, 2, 4096, 4),
  'v6e': _Family('v6e', 2, 1, 256, 16, _SINGLE),
  'tpu7x': _Family('tpu7x', 3, 2, 4096, 4),
}
# {cloud accelerator type: (chip, grid)}
_CLOUD = {
  f'{family.cloud}-{n * family.cores}': (chip, bounds)
  for chip, family in _FAMILIES.items()
  for n, bounds in family.bounds.items()
}


@dataclasses.dataclass(frozen=True)
class Topology:
  """The accelerators of a run."""

  name: str  # libtpu's name of a slice, such as 'v4:2x2x4'; for GPUs 'h100:8'
  chip: chips.Chip
  bounds: tuple[int, ...]  # chips of a slice along each axis
  slices: int  # connected by the data-centre network
  hosts: int  # of all slices
  options: dict  # for `jax.experimental.topologies.get_topology_desc`

  @property
  def chips(self) -> int:  # of all slices
    return math.prod(self.bounds) * self.slices

  @property
  def devices(self) -> int:  # of jax
    return self.chips * self.chip.devices

  @property
  def axis_links(self) -> tuple[int, ...]:
    """Returns the links along each axis of a TPU slice that every chip has.

    An axis that closes to a ring has two. On any other, the chips at the ends
    have one, and collectives wait for them; two chips are assumed to have one
    link, not two. An axis of one chip has none.
    """
    family = _FAMILIES[self.chip.name]
    rings = [n % family.ring == 0 for n in self.bounds]
    if family.dimensions == 3:
      rings = [all(rings)] * 3
    return tuple(
      0 if n == 1 else 1 + ring
      for n, ring in zip(self.bounds, rings, strict=True)
    )

  @property
  def is_tpu(self) -> bool:
    return self.chip.name in _FAMILIES


def parse(text: str, slices: int = 1) -> Topology:
  """Reads the name of a slice, of which there are several.

  It is `v5e:4x4` (chips along each axis), a cloud accelerator type such as
  `v5litepod-16` or `v4-32`, or GPUs of one host such as `h100:8`.
  """
  if slices < 1:
    raise errors.UserError(f'--slices={slices} must be at least 1.')
  name = text.strip().lower()
  grid = re.fullmatch(r'([\w-]+):(\d+(?:x\d+)*)', name)
  if grid:
    chip, bounds = grid[1], tuple(int(n) for n in grid[2].split('x'))
  else:
    chip, bounds = _CLOUD.get(name, ('', ()))
  found = _grid(chip, bounds, slices)
  if found is None:
    near = difflib.get_close_matches(name, list_names(), 3, cutoff=0.5)
    raise errors.UserError(
      f'--topology={text} does not exist; did you mean '
      f'{" or ".join(near or ["v5e:4x4", "v4-32", "h100:8"])}?'
    )
  return found


def cloud_name(topology: Topology) -> str | None:
  """Returns the cloud's name of a slice, such as 'v5litepod-16'.

  None for a grid other than the usual one of so many chips, and for GPUs.
  """
  wanted = topology.chip.name, topology.bounds
  return next((name for name, usual in _CLOUD.items() if usual == wanted), None)


def list_names() -> list[str]:
  """Returns all standard names that `parse` accepts."""
  found = []
  for name, (chip, bounds) in _CLOUD.items():
    found += [f'{chip}:{"x".join(map(str, bounds))}', name]
  gpus = [c.name for c in chips.CHIPS if c.name not in _FAMILIES]
  return found + [f'{name}:{n}' for name in gpus for n in (1, 2, 4, 8)]


def _grid(name, bounds, slices) -> Topology | None:
  n, text = math.prod(bounds), 'x'.join(map(str, bounds))
  if name not in _FAMILIES:
    gpus = [c for c in chips.CHIPS if c.name == name]
    if not gpus or len(bounds) != 1 or not 1 <= n <= 8:
      return None
    return Topology(f'{name}:{n}', gpus[0], bounds, slices, slices, {})
  family = _FAMILIES[name]
  options, hosts = dict(family.options), n // 4
  if bounds in family.single.values():
    host = (*bounds, *(1,) * (3 - len(bounds)))
    options, hosts = {**options, 'chips_per_host_bounds': list(host)}, 1
  elif family.dimensions == 2 and bounds not in family.bounds.values():
    return None
  # A host's four chips form a 2x2 in the first two axes.
  elif len(bounds) != family.dimensions or bounds[0] % 2 or bounds[1] % 2:
    return None
  if not 1 <= n <= family.most:
    return None
  chip = chips.get(name)
  return Topology(
    f'{name}:{text}', chip, bounds, slices, hosts * slices, options
  )
