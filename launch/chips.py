"""What a slice is called in each of Google Cloud's APIs."""

from typing import NamedTuple

from bert_jax import errors
from bert_jax.hardware import accelerators


class Names(NamedTuple):
  """Names of a type of TPU."""

  runtime: str | None  # image of queued resources; None if there are none
  gke: str = ''  # node selector gke-tpu-accelerator
  machine: str = ''  # of GKE's nodes, without '-4t' for four chips
  sizes: tuple[int, ...] = ()  # chips per node
  disk: str = 'pd-balanced'  # boot disk of the nodes; GKE chooses their image


_UBUNTU, _HYPER, _ALL = 'tpu-ubuntu2204-base', 'hyperdisk-balanced', (1, 4, 8)
_LITE = 'v2-alpha-tpuv5-lite', 'tpu-v5-lite-podslice'
_V6E = 'v2-alpha-tpuv6e', 'tpu-v6e-slice'
# Runtimes: Google Cloud's page "TPU software versions". Selectors and machines:
# "Plan TPUs in GKE". Disks, and that TPU7x has no runtime in the Cloud TPU API
# but an image family of its own (ubuntu-accel-2404-amd64-tpu-tpu7x) on Compute
# Engine: constants and runbooks of public projects, which agree. 2026-11-22.
CHIPS = {
  'v2': Names(_UBUNTU),
  'v3': Names(_UBUNTU),
  'v4': Names(_UBUNTU, 'tpu-v4-podslice', 'ct4p-hightpu', (4,)),
  'v5e': Names(*_LITE, 'ct5lp-hightpu', _ALL),
  'v5p': Names('v2-alpha-tpuv5', 'tpu-v5p-slice', 'ct5p-hightpu', (4,)),
  'v6e': Names(*_V6E, 'ct6e-standard', _ALL, _HYPER),
  'tpu7x': Names(None, 'tpu7x', 'tpu7x-standard', (1, 4), _HYPER),
}
# A region has eight external addresses by default; more hosts get internal ones.
MAX_ADDRESSES = 8


def parse(text: str, slices: int) -> accelerators.Topology:
  """Reads --topology, see `bert_jax.hardware.accelerators.parse`."""
  found = accelerators.parse(text, slices)
  if not found.is_tpu:
    raise errors.UserError(f'--topology={text} is not a slice of TPUs.')
  return found


def check_queued(topology: accelerators.Topology):
  """Checks that the Cloud TPU API offers a slice."""
  name = topology.chip.name
  if CHIPS[name].runtime is None:
    raise errors.UserError(f'{name} is on GKE alone: see docs/launch.md#gke')
  if accelerators.cloud_name(topology) is None:
    raise errors.UserError(
      f'--topology={topology.name} has no accelerator type, such as v4-32; see '
      '"gcloud compute tpus accelerator-types list --zone=ZONE".'
    )
