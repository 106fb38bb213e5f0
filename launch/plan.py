"""What is to run, where, and what it may cost."""

import dataclasses
import math
import re

from bert_jax import errors
from bert_jax.hardware import prices
from bert_jax.hardware import topology as topology_lib
from launch import slices

# Fields of `bert_jax.main` that the launcher gives.
_OWN = ('--config=', '--workdir=', '--coordinator', '--num_p', '--process_id')
_NAME = re.compile(r'[a-z]([a-z0-9-]{0,38}[a-z0-9])?')


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run on rented hosts.

  Attributes:
    name: of the run and of its resources.
    config: `--config` of the run, relative to the root of the tree.
    overrides: its further arguments, `--config.field=value`.
    workdir: its working directory, `gs://BUCKET/FOLDER`.
    project: the Google Cloud project.
    api: 'queued' or 'compute'.
    topology: the slices.
    zones: where to ask for them, in this order.
    spot: whether to rent what may be taken away at any time.
    price: US dollars per chip and hour; None if it is not known.
    hours: hours of rent after which the run is stopped.
  """

  name: str
  config: str
  overrides: tuple[str, ...]
  workdir: str
  project: str
  api: str
  topology: topology_lib.Topology
  zones: tuple[str, ...]
  spot: bool
  price: float | None
  hours: float

  @property
  def usd_per_hour(self) -> float | None:
    """Returns the price of all chips; None if it is not known."""
    return None if self.price is None else self.price * self.topology.chips

  @property
  def arguments(self) -> list[str]:
    """Returns the arguments of `bert_jax.main`, the same on every host."""
    return [
      f'--config={self.config}',
      f'--workdir={self.workdir}',
      *self.overrides,
    ]


def make(given, project: str) -> Plan:
  """Makes a plan of the arguments of `launch/tpu.py run`.

  Args:
    given: an object with these arguments as attributes.
    project: the Google Cloud project.

  Raises:
    errors.UserError: if one of them cannot be.
  """
  check_run(given.name, given.workdir, given.overrides)
  zones = tuple(zone.strip() for zone in given.zone.split(','))
  for zone in zones:
    if not re.fullmatch(r'[a-z]+-[a-z]+\d+-(ai\d+)?[a-z]', zone):
      raise errors.UserError(
        f'--zone={given.zone}: {zone!r} is not a zone such as us-east5-b.'
      )
  topology = slices.parse(given.topology, given.slices)
  price = given.price
  if price is None:
    price = prices.USD_PER_CHIP_HOUR.get(topology.chip.name)
  found = Plan(
    name=given.name,
    config=given.config,
    overrides=tuple(given.overrides),
    workdir=given.workdir,
    project=project,
    api=slices.choose_api(topology, given.api),
    topology=topology,
    zones=zones,
    spot=given.spot,
    price=price,
    hours=0.0,
  )
  return dataclasses.replace(found, hours=_limit_hours(found, given))


def check_run(name: str, workdir: str, overrides: list[str]):
  """Checks what every way to start a run is given.

  Args:
    name: of the run.
    workdir: its working directory.
    overrides: its further arguments.

  Raises:
    errors.UserError: if one of them cannot be.
  """
  if not _NAME.fullmatch(name):
    raise errors.UserError(
      f'--name={name} must be up to 40 lower-case letters, digits and hyphens, '
      'and begin with a letter.'
    )
  if not re.fullmatch(r'gs://[a-z0-9][\w.-]+/(.*[^/])', workdir):
    raise errors.UserError(
      f'--workdir={workdir} must be gs://BUCKET/FOLDER, which all hosts can '
      'reach and which survives them.'
    )
  for text in overrides:
    if text.startswith(_OWN) or not text.startswith('--config.'):
      raise errors.UserError(
        f'{text} is not an argument; give fields of the config as '
        '--config.field=value, and see --help.'
      )
    if '\n' in text:
      raise errors.UserError(f'{text!r} must be one line.')


def check_positive(**values: float | None):
  """Checks numbers that are given by flags of their names.

  Raises:
    errors.UserError: if one is not between 0 and infinity.
  """
  for name, value in values.items():
    if value is not None and not 0 < value < math.inf:
      raise errors.UserError(
        f'--{name}={value} must be more than 0 and finite.'
      )


def _limit_hours(plan, given) -> float:
  """Returns the hours that --max_hours and --max_usd allow."""
  check_positive(
    max_hours=given.max_hours, max_usd=given.max_usd, price=given.price
  )
  if given.max_usd is None:
    return given.max_hours
  if plan.usd_per_hour is None:
    raise errors.UserError(
      f'--max_usd={given.max_usd} needs a price, and none is known for '
      f'{plan.topology.chip.name}; give --price=USD per chip and hour.'
    )
  return min(given.max_hours, given.max_usd / plan.usd_per_hour)


def format_range(pair: list[float], unit: str = '') -> str:
  """Returns a low and a high number with three digits, each behind `unit`."""
  return ' to '.join(
    f'{unit}{x:,.0f}' if x >= 100 else f'{unit}{x:.3g}' for x in pair
  )


def describe(plan: Plan, source: str) -> list[str]:
  """Returns the plan as lines.

  Args:
    plan: the plan.
    source: where its price comes from.
  """
  topology, kind = plan.topology, 'spot' if plan.spot else 'on demand'
  where = f'{topology.chips:,} chips on {topology.hosts:,} host(s)'
  if topology.slices > 1:
    where += f' in {topology.slices} slices'
  found = [
    f'run       {plan.name}: {" ".join(plan.arguments)}',
    f'project   {plan.project}',
    f'machines  {topology.name}, {where}, {kind}, in {" or ".join(plan.zones)}'
    f' ({plan.api})',
  ]
  price = 'not known; give --price=USD per chip and hour'
  limit = f'{plan.hours:,.1f} hours of rent'
  if plan.usd_per_hour is not None:
    price = f'{topology.chips:,} chips x ${plan.price:.2f} = '
    price += f'${plan.usd_per_hour:,.2f} an hour ({source})'
    limit += f', ${plan.hours * plan.usd_per_hour:,.2f}'
  return [
    *found,
    f'price     {price}',
    f'limit     {limit}; then the run is stopped',
  ]
