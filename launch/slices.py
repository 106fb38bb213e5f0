"""What a slice is called in each of Google Cloud's APIs."""

import dataclasses

from bert_jax import errors
from bert_jax.hardware import topology as topology_lib


@dataclasses.dataclass(frozen=True)
class Chip:
  """Names of a type of TPU.

  Attributes:
    runtime: runtime version for queued resources; None where the Cloud TPU API
      does not have the chip.
    machines: {chips per host: machine type of Compute Engine}; empty where the
      chip is not offered there.
    gke: value of the node selector `gke-tpu-accelerator`, or None.
    gke_machines: {chips per host: machine type of GKE's nodes}.
  """

  runtime: str | None
  machines: dict[int, str]
  gke: str | None
  gke_machines: dict[int, str]


# Google Cloud's pages on TPU software versions, on TPU machine types and on
# TPUs in GKE, as of 2026-11-22.
_UBUNTU = 'tpu-ubuntu2204-base'
CHIPS = {
  'v2': Chip(_UBUNTU, {}, None, {}),
  'v3': Chip(_UBUNTU, {}, None, {}),
  'v4': Chip(_UBUNTU, {}, 'tpu-v4-podslice', {4: 'ct4p-hightpu-4t'}),
  'v5e': Chip(
    'v2-alpha-tpuv5-lite',
    {},
    'tpu-v5-lite-podslice',
    {n: f'ct5lp-hightpu-{n}t' for n in (1, 4, 8)},
  ),
  'v5p': Chip(
    'v2-alpha-tpuv5',
    {4: 'ct5p-hightpu-4t'},
    'tpu-v5p-slice',
    {4: 'ct5p-hightpu-4t'},
  ),
  'v6e': Chip(
    'v2-alpha-tpuv6e',
    {n: f'ct6e-standard-{n}t' for n in (1, 4, 8)},
    'tpu-v6e-slice',
    {n: f'ct6e-standard-{n}t' for n in (1, 4, 8)},
  ),
  'tpu7x': Chip(
    None,
    {4: 'tpu7x-standard-4t'},
    'tpu7x',
    {n: f'tpu7x-standard-{n}t' for n in (1, 4)},
  ),
}
# Chips for which the Cloud TPU API is the usual way.
_QUEUED = ('v2', 'v3', 'v4', 'v5e')
APIS = ('queued', 'compute')
# A region has eight external addresses by default; more hosts get internal ones.
MAX_ADDRESSES = 8


def parse(text: str, slices: int) -> topology_lib.Topology:
  """Reads --topology, see `bert_jax.hardware.topology.parse`.

  Raises:
    errors.UserError: if there is no such slice, or it is one of GPUs.
  """
  found = topology_lib.parse(text, slices)
  if not found.is_tpu:
    raise errors.UserError(
      f'--topology={text} is not a TPU slice; give one such as v5litepod-16.'
    )
  return found


def choose_api(topology: topology_lib.Topology, api: str | None) -> str:
  """Returns 'queued' or 'compute'.

  Args:
    topology: the slice.
    api: the user's choice; None is the usual one of the chip.

  Raises:
    errors.UserError: if the chip cannot be rented that way.
  """
  name = topology.chip.name
  chip = CHIPS[name]
  chosen = api or ('queued' if name in _QUEUED else 'compute')
  if chosen == 'queued' and chip.runtime is None:
    raise errors.UserError(
      f'--api=queued does not offer {name}; use --api=compute.'
    )
  if chosen == 'queued' and topology_lib.cloud_name(topology) is None:
    raise errors.UserError(
      f'--topology={topology.name} has no accelerator type; use one of '
      f'{_list_types(name)}.'
    )
  if chosen == 'compute' and chips_per_host(topology) not in chip.machines:
    raise errors.UserError(
      f'--api=compute offers {name} with '
      f'{" or ".join(map(str, chip.machines)) or "no"} chips per host, '
      f'{topology.name} has {chips_per_host(topology)}; use --api=queued.'
    )
  if chosen == 'compute' and topology.slices > 1:
    raise errors.UserError(
      f'--slices={topology.slices} needs --api=queued or launch/gke.py.'
    )
  return chosen


def chips_per_host(topology: topology_lib.Topology) -> int:
  """Returns the chips of one host."""
  return topology.chips // topology.hosts


def format_grid(topology: topology_lib.Topology) -> str:
  """Returns the chips along each axis, such as '4x4'."""
  return topology.name.partition(':')[2]


def _list_types(chip: str) -> str:
  names = (topology_lib.parse(n) for n in topology_lib.list_names())
  found = {topology_lib.cloud_name(n) for n in names if n.chip.name == chip} - {
    None
  }
  return ', '.join(sorted(found, key=lambda n: (len(n), n)))
