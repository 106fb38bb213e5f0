"""The manifest of a run on a GKE cluster with TPUs, which Kubernetes then runs."""

import argparse
import json
import os
import secrets
import string

from bert_jax import errors
from launch import archive, queued, start
from launch.plan import CHIPS, check_run, parse_topology
from launch.world import World

_TEMPLATE = os.path.join(os.path.dirname(__file__), 'jobset.yaml')
_SPOT, _TPU = 'cloud.google.com/gke-spot', 'cloud.google.com/gke-tpu-'


def make_manifest(world: World, given: argparse.Namespace) -> str:
  """Returns the JobSet, below the commands that make and delete its nodes."""
  check_run(given)
  topology = parse_topology(given.topology, given.slices)
  n = topology.chips // topology.hosts
  _, name, machine, sizes, disk = CHIPS[topology.chip.name]
  if n not in sizes:
    raise errors.UserError(f'GKE does not offer --topology={topology.name}.')
  launch, seconds = f'gke-{secrets.token_hex(4)}', int(given.max_hours * 3600)
  grid = topology.name.partition(':')[2]
  hosts = topology.hosts // topology.slices
  queue = {'kueue.x-k8s.io/queue-name': given.queue} if given.queue else {}
  selector = {f'{_TPU}accelerator': name, f'{_TPU}topology': grid}
  taint = {'key': _SPOT, 'operator': 'Exists', 'effect': 'NoSchedule'}
  values = {
    **{'name': given.name, 'image': given.image, 'chips': n, 'hosts': hosts},
    **{'slices': topology.slices, 'seconds': seconds},
    'job': queued.render_job(world, given, launch, topology, seconds),
    'labels': {'bert-jax-run': given.name, **queue},
    'selector': selector | ({_SPOT: 'true'} if given.spot else {}),
    'tolerations': [taint] if given.spot else [],
    'index': "metadata.annotations['jobset.sigs.k8s.io/job-index']",
    'account': given.service_account or 'default',
  }
  with open(_TEMPLATE, encoding='utf-8') as file:
    template = string.Template(file.read())
  # JSON is YAML.
  filled = template.substitute({k: json.dumps(v) for k, v in values.items()})
  lines, place = [], f'--tpu-topology={grid}'
  if name == 'tpu7x' and hosts > 1:
    place = f'--placement-policy={given.name}'
    lines.append(
      f'# gcloud compute resource-policies create workload-policy {given.name} '
      f'--region=REGION --type=HIGH_THROUGHPUT --accelerator-topology={grid}'
    )
  # Without nodes at first: they come with the pods that wait for them, and go
  # some minutes after the last one. A fixed number would cost until deleted.
  place += f' --num-nodes=0 --enable-autoscaling --max-nodes={hosts}'
  place += f' --machine-type={machine}-{n}t --disk-type={disk}'
  place += f' --node-locations=ZONE{" --spot" * given.spot}'
  ended = '# When the run has ended; "kubectl get nodes" shows what costs:\n'
  for act, text, more in (('create', '', f' {place}'), ('delete', ended, '')):
    lines += [
      f'{text * (not i)}# gcloud container node-pools {act} {given.name}-{i} '
      f'--cluster=CLUSTER --location=REGION{more}'
      for i in range(topology.slices)
    ]
  return '\n'.join([*lines, filled])


def run(world: World, given: argparse.Namespace) -> int:
  """Prints the manifest."""
  path, given.config = given.config, archive.check_config(given.config)
  start.check_config(world, path, given.overrides)
  print(make_manifest(world, given), end='')
  return 0
