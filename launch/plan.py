"""What is to run, where, and what it may cost."""

import argparse
import dataclasses
import math
import re

from bert_jax import errors
from bert_jax.hardware import accelerators
from bert_jax.hardware.chips import USD_PER_CHIP_HOUR
from launch import chips

_NAME = re.compile(r'[a-z]([a-z0-9-]{0,38}[a-z0-9])?')
_ZONE = re.compile(r'[a-z]+-[a-z]+\d+-(ai\d+)?[a-z]')
# What is safe in the URL of an object and in the arguments of every tool.
_WORKDIR = re.compile(r'gs://[a-z0-9][a-z0-9._-]+(/[A-Za-z0-9._=-]+)+')
# Without these, a request could not be found again.
_RESERVED = 'zone|project|label|node-|async|metadata|accelerator|runtime|format'
_ALLOWED = re.compile(rf'--(?!{_RESERVED}|quiet|flags-file)[a-z]')
_MODELS = ('spot', 'flex_start', 'reserved')


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
  network: list[str]  # more arguments of the request
  account: str | None  # the hosts'; None is the project's default
  price: float | None  # US dollars per chip and hour; None if unknown
  hours: float  # of rent, after which the run is stopped

  @property
  def topology(self) -> accelerators.Topology:
    return chips.parse(self.slice, self.slices)

  def price_of(self, hours: float, before: str = ', ') -> str:
    """Returns `before` and the rent of all chips; '' if it is not known."""
    if self.price is None:
      return ''
    return f'{before}${self.price * self.topology.chips * hours:,.2f}'


def make_plan(given: argparse.Namespace) -> Plan:
  """Makes a plan of the arguments of `launch/tpu.py run`, and checks them."""
  check_run(given)
  zones = [zone.strip() for zone in given.zone.split(',')]
  for zone in zones:
    if not _ZONE.fullmatch(zone):
      raise errors.UserError(f'--zone={zone} is not a zone such as us-east5-b.')
  topology = chips.parse(given.topology, given.slices)
  chips.check_queued(topology)
  models = [model for model in _MODELS if getattr(given, model)]
  if len(models) > 1:
    raise errors.UserError(f'give one of --{" and --".join(models)}.')
  price, hours = given.price, given.max_hours
  price = price or USD_PER_CHIP_HOUR.get(topology.chip.name)
  if given.max_usd is not None:
    if price is None:
      chip = topology.chip.name
      raise errors.UserError(f'--max_usd needs --price: {chip} is in no list.')
    hours = min(hours, given.max_usd / (price * topology.chips))
  return Plan(
    *(given.name, given.config, given.overrides, given.workdir),
    *(topology.name, given.slices, zones),
    *(models[0] if models else 'on demand', _list_network(given, topology)),
    *(given.service_account, price, hours),
  )


def _list_network(given, topology) -> list[str]:
  for text in given.gcloud_arg:
    if not _ALLOWED.match(text):
      raise errors.UserError(
        f'--gcloud_arg={text} must be an argument of "gcloud compute tpus '
        'queued-resources create" that the launcher does not give itself.'
      )
  inside = given.internal_ips or topology.hosts > chips.MAX_ADDRESSES
  named = {'network': given.network, 'subnetwork': given.subnetwork}
  words = [f'--{name}={value}' for name, value in named.items() if value]
  return [*words, *(['--internal-ips'] if inside else []), *given.gcloud_arg]


def check_run(given: argparse.Namespace):
  """Checks what all runs are given: name, config, workdir, fields, limits."""
  if not _NAME.fullmatch(given.name):
    raise errors.UserError(f'--name={given.name}: use up to 40 of a-z 0-9 -')
  if not _WORKDIR.fullmatch(given.workdir) or '..' in given.workdir:
    raise errors.UserError(
      f'--workdir={given.workdir!r} must be gs://BUCKET/FOLDER, of letters, '
      'digits and . _ = -, which all hosts can reach and which survives them.'
    )
  for text in (given.config, *given.overrides):
    if '..' in text or '*' in text or not text.isprintable():
      raise errors.UserError(f'{text!r} must be one line without "*" and "..".')
  for text in given.overrides:
    if not text.startswith('--config.'):
      raise errors.UserError(
        f'{text} is not an argument; give fields of the config as '
        '--config.field=value, and see --help.'
      )
  for name in ('max_hours', 'max_usd', 'price'):
    value = getattr(given, name, None)
    if value is not None and not 0 < value < math.inf:
      raise errors.UserError(f'--{name}={value} must be above 0 and finite.')
