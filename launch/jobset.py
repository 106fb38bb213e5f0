"""Manifests for GKE as plain data: a JobSet, and queues of Kueue.

A JobSet has one Job per slice, and the Job one pod per host. Google's examples
of JobSets on TPUs and the JobSet API (v1alpha2) say what the fields mean.
"""

import json
import re
from typing import Any

from bert_jax import errors
from bert_jax.hardware import topology as topology_lib
from launch import slices

# A pod that ends with 1 was refused: the same again would be, too.
_REFUSED = 1
# Restarts of all pods together, after preemptions and crashes.
_MAX_RESTARTS = 50
_GRACE_SECONDS = 60  # between SIGTERM and SIGKILL, to save a checkpoint


def make(
  name: str,
  image: str,
  arguments: list[str],
  topology: topology_lib.Topology,
  spot: bool,
  queue: str | None,
  seconds: int,
) -> dict:
  """Returns the JobSet of a run.

  Args:
    name: of the run.
    image: container image with bert_jax and its extras tpu and gcs.
    arguments: of `bert_jax.main`.
    topology: the slices.
    spot: whether to use nodes that may be taken away at any time.
    queue: LocalQueue of Kueue; None starts at once or waits for nodes.
    seconds: time after which the Jobs are ended.

  Raises:
    errors.UserError: if GKE does not offer the slice.
  """
  pod = _pod(name, image, arguments, topology, spot)
  job = _job(topology.hosts // topology.slices, seconds, pod)
  metadata: dict[str, Any] = {
    'name': name,
    'labels': {'bert-jax-run': name},
    # A slice is a node pool: each Job gets one of its own.
    'annotations': {
      'alpha.jobset.sigs.k8s.io/exclusive-topology': (
        'cloud.google.com/gke-nodepool'
      )
    },
  }
  if queue:
    metadata['labels']['kueue.x-k8s.io/queue-name'] = queue
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': metadata,
    'spec': {
      'failurePolicy': {
        'maxRestarts': _MAX_RESTARTS,
        'rules': [
          {
            'name': 'refused-or-out-of-time',
            'action': 'FailJobSet',
            'onJobFailureReasons': ['PodFailurePolicy', 'DeadlineExceeded'],
          }
        ],
      },
      'replicatedJobs': [
        {'name': 'slice', 'replicas': topology.slices, 'template': job}
      ],
    },
  }


def _job(hosts, seconds, pod) -> dict:
  return {
    'spec': {
      'parallelism': hosts,
      'completions': hosts,
      'completionMode': 'Indexed',
      # The JobSet starts all pods again, not one of them.
      'backoffLimit': 0,
      'activeDeadlineSeconds': seconds,
      'podFailurePolicy': {
        'rules': [
          {
            'action': 'FailJob',
            'onExitCodes': {
              'containerName': 'bert-jax',
              'operator': 'In',
              'values': [_REFUSED],
            },
          }
        ]
      },
      'template': pod,
    }
  }


def _pod(name, image, arguments, topology, spot) -> dict:
  chips = slices.chips_per_host(topology)
  chip = slices.CHIPS[topology.chip.name]
  if chip.gke is None or chips not in chip.gke_machines:
    raise errors.UserError(
      f'--topology={topology.name} is not offered by GKE; use launch/tpu.py.'
    )
  selector = {
    'cloud.google.com/gke-tpu-accelerator': chip.gke,
    'cloud.google.com/gke-tpu-topology': slices.format_grid(topology),
  }
  spec: dict[str, Any] = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': _GRACE_SECONDS,
    'hostNetwork': True,
    'dnsPolicy': 'ClusterFirstWithHostNet',
    'nodeSelector': selector,
    'containers': [
      {
        'name': 'bert-jax',
        'image': image,
        'command': ['python', '-m', 'bert_jax.main', *arguments],
        'ports': [{'containerPort': 8471}, {'containerPort': 8080}],
        'securityContext': {'privileged': True},
        'resources': {
          'requests': {'google.com/tpu': chips},
          'limits': {'google.com/tpu': chips},
        },
      }
    ],
  }
  if spot:
    selector['cloud.google.com/gke-spot'] = 'true'
    spec['tolerations'] = [
      {
        'key': 'cloud.google.com/gke-spot',
        'operator': 'Equal',
        'value': 'true',
        'effect': 'NoSchedule',
      }
    ]
  return {'metadata': {'labels': {'bert-jax-run': name}}, 'spec': spec}


def make_queues(
  queue: str, topology: topology_lib.Topology, chips: int
) -> list[dict]:
  """Returns Kueue's objects for a queue with a quota of chips.

  Args:
    queue: name of the LocalQueue, and of what stands behind it.
    topology: the slices that it hands out.
    chips: how many may be in use at a time.
  """
  chip = slices.CHIPS[topology.chip.name]

  def thing(kind, spec):
    return {
      'apiVersion': 'kueue.x-k8s.io/v1beta2',
      'kind': kind,
      'metadata': {'name': queue},
      'spec': spec,
    }

  quota = {'name': 'google.com/tpu', 'nominalQuota': chips}
  group = {
    'coveredResources': ['google.com/tpu'],
    'flavors': [{'name': queue, 'resources': [quota]}],
  }
  labels = {
    'cloud.google.com/gke-tpu-accelerator': chip.gke,
    'cloud.google.com/gke-tpu-topology': slices.format_grid(topology),
  }
  return [
    thing('ResourceFlavor', {'nodeLabels': labels}),
    thing('ClusterQueue', {'namespaceSelector': {}, 'resourceGroups': [group]}),
    # In the namespace of the JobSet: that of kubectl.
    thing('LocalQueue', {'clusterQueue': queue}),
  ]


def to_yaml(value: Any, indent: int = 0) -> str:
  """Returns dicts, lists and scalars as YAML.

  Strings are quoted as in JSON, which YAML contains, unless they are words.
  """
  space = '  ' * indent
  if isinstance(value, dict) and value:
    return ''.join(
      f'{space}{_scalar(key)}:{_nested(item, indent + 1)}'
      for key, item in value.items()
    )
  if isinstance(value, list) and value:
    return ''.join(
      # The first key of an item stands behind the dash.
      f'{space}- {to_yaml(item, indent + 1).lstrip()}'
      for item in value
    )
  return f'{space}{_scalar(value)}\n'


def _nested(value, indent) -> str:
  if isinstance(value, dict | list) and value:
    return '\n' + to_yaml(value, indent)
  return f' {_scalar(value)}\n'


def _scalar(value) -> str:
  words = ('true', 'false', 'null', 'yes', 'no', 'on', 'off', 'y', 'n')
  plain = isinstance(value, str) and re.fullmatch(r'[A-Za-z][\w./-]*', value)
  if plain and value.lower() not in words:
    return value
  return json.dumps(value)
