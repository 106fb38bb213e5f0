"""Keeps the ledger of a launch in the bucket, beside the run."""

import dataclasses
import json
import random
import time

from bert_jax import errors
from launch import bucket, job, resource, supervisor
from launch import plan as plan_lib
from launch.world import World


def load(world: World, workdir: str) -> tuple[dict | None, str]:
  """Returns (what `save` wrote, its generation); (None, '0') before that."""
  url = job.ledger_url(workdir)
  # In this order, a change in between is noticed when it is written.
  generation = bucket.get_generation(world.run, url)
  if generation == '0':
    return None, generation
  text = bucket.read(world.run, url)
  return (json.loads(text) if text else None), generation


def save(
  world: World,
  plan: plan_lib.Plan,
  ledger: supervisor.Ledger,
  generation: str,
) -> str:
  """Writes the ledger and returns its new generation.

  Raises:
    errors.UserError: if another supervisor has written since.
    commands.CommandError: if it could not be written.
  """
  url = job.ledger_url(plan.workdir)
  fields = {'name': plan.name, 'project': plan.project}
  fields |= {'writer': world.writer}
  text = json.dumps({**fields, **dataclasses.asdict(ledger)}, indent=2) + '\n'
  for _ in range(2):
    try:
      return bucket.write(world.run, url, text, generation)
    except bucket.Changed:
      stored, generation = load(world, plan.workdir)
      if not stored or stored.get('writer') != world.writer:
        break
      # It was this supervisor, and the answer to that write was lost.
  raise errors.UserError(
    f'{url} was written by another process: it watches this run now.'
  )


def open_launch(
  world: World,
  plan: plan_lib.Plan,
  found: list[resource.Resource],
  sha256: str,
) -> tuple[supervisor.Ledger, str]:
  """Continues the launch that is under way, or begins one.

  Args:
    world: runs commands.
    plan: the run.
    found: all resources of the run; the launch of those that live goes on.
    sha256: that of the archive of the code, for a new launch.

  Returns:
    (the ledger, the generation of its object).

  Raises:
    errors.UserError: if the resources belong to another run or are others than
      the plan's, or if this run is in another project.
  """
  now = world.now()
  stored, generation = load(world, plan.workdir)
  jobs = [job.read(r.job) for r in found if r.job]
  for other in jobs:
    if other.get('workdir') != plan.workdir:
      raise errors.UserError(
        f'--name={plan.name} is in use, with --workdir={other.get("workdir")}; '
        f'choose another name, or end that run with "down {plan.name}".'
      )
    _check_hosts(plan, other)
  if stored and not stored['reason'] and stored['name'] == plan.name:
    end = bucket.read(world.run, job.end_url(plan.workdir, stored['job']))
    project = stored.get('project', plan.project)
    if project != plan.project and end is None:
      raise errors.UserError(
        f'{plan.name} is in project {project}, and gcloud uses {plan.project}; '
        f'go on there with CLOUDSDK_CORE_PROJECT={project}, or end it first: '
        f'python launch/tpu.py stop {plan.name}'
      )
    if end is None or found:
      own = {field.name for field in dataclasses.fields(supervisor.Ledger)}
      kept = {key: value for key, value in stored.items() if key in own}
      return _with_zone(supervisor.Ledger(**kept), plan, found), generation
  if jobs:  # the ledger was lost, or is that of an earlier launch
    name, sha256 = jobs[0]['job'], jobs[0]['sha256']
  else:
    name = time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))
    name += f'-{random.randrange(10**4):04}'
  fresh = supervisor.Ledger(
    job=name, started=now, time=now, since=now, sha256=sha256
  )
  return _with_zone(fresh, plan, found), generation


def _check_hosts(plan, other: dict[str, str]):
  """Refuses hosts, given by their job, whose price and number are others."""
  topology = plan.topology
  for key, value in ('topology', topology.name), ('slices', topology.slices):
    if other.get(key, str(value)) != str(value):
      raise errors.UserError(
        f'{plan.name} has hosts of --{key}={other[key]}; give that, or end them '
        f'first: python launch/tpu.py stop {plan.name}'
      )


def _with_zone(ledger, plan, found) -> supervisor.Ledger:
  """Returns the ledger with the zone in which the run's hosts are."""
  zones = [r.place for r in found if r.place in plan.zones]
  zone = plan.zones.index(zones[0]) if zones else ledger.zone
  return dataclasses.replace(ledger, zone=zone % len(plan.zones))
