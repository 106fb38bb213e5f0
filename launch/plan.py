"""What is to run, where, and what it may cost; names of chips in Google's APIs."""

import argparse
import dataclasses
import math
import re

from bert_jax import errors
from bert_jax.hardware import accelerators
from bert_jax.hardware.chips import USD_PER_CHIP_HOUR

_NAME = re.compile(r'[a-z]([a-z0-9-]{0,38}[a-z0-9])?')
_ZONE = re.compile(r'[a-z]+-[a-z]+\d+-(ai\d+)?[a-z]')
# What is safe in the URL of an object and in the arguments of every tool.
_WORKDIR = re.compile(r'gs://[a-z0-9][a-z0-9._-]+(/[A-Za-z0-9._=-]+)+')
# Without these, a request could not be found again.
_RESERVED = 'zone|project|label|node-|async|metadata|accelerator|runtime|format'
_ALLOWED = re.compile(rf'--(?!{_RESERVED}|quiet|flags-file)[a-z]')
_MODELS = ('spot', 'flex_start')
# A region has eight external addresses by default; more hosts get internal ones.
_MAX_ADDRESSES = 8


_UBUNTU, _HYPER, _ALL = 'tpu-ubuntu2204-base', 'hyperdisk-balanced', (1, 4, 8)
_LITE = 'v2-alpha-tpuv5-lite', 'tpu-v5-lite-podslice'
_V6E = 'v2-alpha-tpuv6e', 'tpu-v6e-slice'
# {chip: (image of queued resources, if there are any; on GKE: node selector
# gke-tpu-accelerator, machine without '-4t' for four chips, chips per node, disk)}.
# Runtimes: Google Cloud's page "TPU software versions". Selectors and machines:
# "Plan TPUs in GKE". Disks, and that TPU7x has no runtime in the Cloud TPU API
# but an image family of its own (ubuntu-accel-2404-amd64-tpu-tpu7x) on Compute
# Engine: constants and runbooks of public projects, which agree. 2026-11-22.
CHIPS = {
  'v2': (_UBUNTU, '', '', (), ''),
  'v3': (_UBUNTU, '', '', (), ''),
  'v4': (_UBUNTU, 'tpu-v4-podslice', 'ct4p-hightpu', (4,), 'pd-balanced'),
  'v5e': (*_LITE, 'ct5lp-hightpu', _ALL, 'pd-balanced'),
  'v5p': (
    'v2-alpha-tpuv5',
    'tpu-v5p-slice',
    'ct5p-hightpu',
    (4,),
    'pd-balanced',
  ),
  'v6e': (*_V6E, 'ct6e-standard', _ALL, _HYPER),
  'tpu7x': (None, 'tpu7x', 'tpu7x-standard', (1, 4), _HYPER),
}


@dataclasses.dataclass
class Plan:
  """A run on rented hosts, kept in the ledger."""

  name: str  # of the run
  config: str  # --config, relative to the root of the tree
  overrides: list[str]  # --config.field=value
  workdir: str  # gs://BUCKET/FOLDER
  slice: str  # its name, such as v5e:4x4
  slices: int
  zones: list[str]  # where to ask for hosts, in this order
  model: str  # 'on demand' or one of _MODELS
  more: list[str]  # further arguments of the request
  account: str | None  # the hosts'; None is the project's default
  price: float | None  # US dollars per chip and hour; None if unknown
  hours: float  # of rent, after which the run is stopped
  project: str = ''  # Google Cloud's

  @property
  def topology(self) -> accelerators.Topology:
    return parse_topology(self.slice, self.slices)

  def price_of(self, hours: float, before: str = ', ') -> str:
    """Returns `before` and the rent of all chips; '' if it is not known."""
    if self.price is None:
      return ''
    return f'{before}${self.price * self.topology.chips * hours:,.2f}'


def parse_topology(text: str, slices: int) -> accelerators.Topology:
  """Reads --topology, see `bert_jax.hardware.accelerators.parse`."""
  topology = accelerators.parse(text, slices)
  if not topology.is_tpu:
    raise errors.UserError(f'--topology={text} is not a slice of TPUs.')
  return topology


def make_plan(given: argparse.Namespace) -> Plan:
  """Makes a plan of the arguments of `launch/tpu.py run`, and checks them."""
  check_run(given)
  zones = [zone.strip() for zone in given.zone.split(',')]
  for zone in zones:
    if not _ZONE.fullmatch(zone):
      raise errors.UserError(f'--zone={zone} is not a zone such as us-east5-b.')
  topology = parse_topology(given.topology, given.slices)
  chip, more = topology.chip.name, list(given.gcloud_arg)
  if not CHIPS[chip][0]:
    raise errors.UserError(f'{chip} is on GKE alone: see docs/launch.md#gke')
  if accelerators.cloud_name(topology) is None:
    raise errors.UserError(
      f'--topology={topology.name} has no accelerator type, such as v4-32.'
    )
  models = [model for model in _MODELS if getattr(given, model)]
  if len(models) > 1:
    raise errors.UserError(f'give one of --{" and --".join(models)}.')
  for text in more:
    if not _ALLOWED.match(text):
      raise errors.UserError(
        f'--gcloud_arg={text} must be an argument of "gcloud compute tpus '
        'queued-resources create" that the launcher does not give itself.'
      )
  if topology.hosts > _MAX_ADDRESSES and '--internal-ips' not in more:
    more.append('--internal-ips')
  price, hours = given.price or USD_PER_CHIP_HOUR.get(chip), given.max_hours
  if given.max_usd is not None:
    if price is None:
      raise errors.UserError(f'--max_usd needs --price: {chip} is in no list.')
    hours = min(hours, given.max_usd / (price * topology.chips))
  return Plan(
    *(given.name, given.config, given.overrides, given.workdir),
    *(topology.name, given.slices, zones, *(models or ['on demand']), more),
    *(given.service_account, price, hours),
  )


def check_run(given: argparse.Namespace):
  """Checks what all runs are given: name, config, workdir, fields, limits."""
  if not _NAME.fullmatch(given.name):
    raise errors.UserError(f'--name={given.name}: use up to 40 of a-z 0-9 -')
  if not _WORKDIR.fullmatch(given.workdir) or '..' in given.workdir:
    raise errors.UserError(
      f'--workdir={given.workdir!r} must be gs://BUCKET/FOLDER, of letters, '
      'digits and . _ = -'
    )
  for text in (given.config, *given.overrides):
    if '..' in text or '*' in text or not text.isprintable():
      raise errors.UserError(f'{text!r} must be one line without "*" and "..".')
  for text in given.overrides:
    if not text.startswith('--config.'):
      raise errors.UserError(
        f'{text} is not an argument; fields are --config.field=value; see --help.'
      )
  for name in ('max_hours', 'max_usd', 'price'):
    value = getattr(given, name, None)
    if value is not None and not 0 < value < math.inf:
      raise errors.UserError(f'--{name}={value} must be above 0 and finite.')
