"""The manifest of a run on a GKE cluster with TPUs, which Kubernetes then runs."""

import argparse
import json
import os
import secrets
import string

from bert_jax import errors
from launch import archive, chips, estimate, queued
from launch.plan import check_positive, check_run
from launch.world import World

_TEMPLATE = os.path.join(os.path.dirname(__file__), 'jobset.yaml')
_CLUSTER = '--cluster=CLUSTER --location=REGION'
_SPOT, _TPU = 'cloud.google.com/gke-spot', 'cloud.google.com/gke-tpu-'


def make_manifest(given: argparse.Namespace, world: World) -> str:
  """Returns the JobSet, below the commands that make and delete its nodes."""
  check_run(given)
  check_positive(given, 'max_hours')
  topology = chips.parse(given.topology, given.slices)
  names, n = chips.CHIPS[topology.chip.name], topology.chips // topology.hosts
  if n not in names.sizes:
    raise errors.UserError(f'GKE does not offer --topology={topology.name}.')
  launch, seconds = f'gke-{secrets.token_hex(4)}', int(given.max_hours * 3600)
  grid = topology.name.partition(':')[2]
  hosts = topology.hosts // topology.slices
  text = queued.render_job(world, given, launch, topology, seconds)
  queue = {'kueue.x-k8s.io/queue-name': given.queue} if given.queue else {}
  selector = {f'{_TPU}accelerator': names.gke, f'{_TPU}topology': grid}
  taint = {'key': _SPOT, 'operator': 'Exists', 'effect': 'NoSchedule'}
  values = {'name': given.name, 'image': given.image, 'job': text, 'chips': n}
  values |= {'slices': topology.slices, 'hosts': hosts, 'seconds': seconds}
  values['labels'] = {'bert-jax-run': given.name, **queue}
  values['selector'] = selector | ({_SPOT: 'true'} if given.spot else {})
  values['tolerations'] = [taint] if given.spot else []
  values['index'] = "metadata.annotations['jobset.sigs.k8s.io/job-index']"
  values['account'] = given.service_account or 'default'
  with open(_TEMPLATE, encoding='utf-8') as file:
    template = string.Template(file.read())
  # JSON is YAML.
  filled = template.substitute({k: json.dumps(v) for k, v in values.items()})
  lines, place = [], f'--tpu-topology={grid}'
  if names.gke == 'tpu7x' and hosts > 1:
    place = f'--placement-policy={given.name}'
    lines.append(
      f'# gcloud compute resource-policies create workload-policy {given.name} '
      f'--region=REGION --type=HIGH_THROUGHPUT --accelerator-topology={grid}'
    )
  place += f' --disk-type={names.disk}{" --spot" * given.spot}'
  pools = [f'{given.name}-{i} {_CLUSTER}' for i in range(topology.slices)]
  # Without nodes at first: they come with the pods that wait for them, and go
  # some minutes after the last one. A fixed number would cost until deleted.
  lines += [
    f'# gcloud container node-pools create {pool} --node-locations=ZONE '
    f'--num-nodes=0 --enable-autoscaling --max-nodes={hosts} '
    f'--machine-type={names.machine}-{n}t {place}'
    for pool in pools
  ]
  lines.append(
    '# When the run has ended; "kubectl get nodes" shows what costs:'
  )
  lines += [f'# gcloud container node-pools delete {pool}' for pool in pools]
  return '\n'.join([*lines, filled])


def run(given: argparse.Namespace, world: World) -> int:
  """Prints the manifest."""
  path, given.config = given.config, archive.check_config(given.config)
  text = make_manifest(given, world)
  estimate.check_config(world, path, given.overrides)
  print(text, end='')
  return 0
