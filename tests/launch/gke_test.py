"""The manifest for GKE, its image, and the file of SkyPilot."""

import os
import pathlib
import re
import subprocess

import pytest
import yaml

from bert_jax import errors
from launch import archive, gke, tpu, world

ROOT = pathlib.Path(archive.ROOT)
WORDS = ['gke', '--name=r', '--image=i', '--config=configs/tiny.py:smoke']
WORDS += ['--workdir=gs://bkt/r', '--topology=v6e-16']


def make(*more):
  """Returns (the manifest's text, its JobSet, a slice's Job, a host's pod)."""
  given, given.overrides = tpu.make_parser().parse_known_args([*WORDS, *more])
  text = gke.make_manifest(world.World(), given)
  made = yaml.safe_load(text)
  (jobs,) = made['spec']['replicatedJobs']
  job = jobs['template']['spec']
  return text, made, job, job['template']['spec']


def test_job_follows_the_schema_of_kubernetes():
  validate = pytest.importorskip('kubernetes_validate')
  more = '--spot', '--queue=tpus', '--slices=2', '--service_account=trainer'
  text = '--config.data.dir=gs://b/"q" \\ $x: {y}'
  job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'r'}}
  for words in (more, ('--topology=tpu7x-8', text)):
    _, _, job['spec'], _ = make(*words)
    validate.validate(job, '1.32', strict=True)
  job['spec']['parallelisms'] = 3
  with pytest.raises(validate.ValidationError):
    validate.validate(job, '1.32', strict=True)


def test_one_job_per_slice_and_one_pod_per_host():
  more = '--slices=2', '--service_account=trainer', '--config.seed=2'
  _, made, job, pod = make(*more)
  assert made['spec']['replicatedJobs'][0]['replicas'] == 2
  assert job['parallelism'] == job['completions'] == 4
  # Pods count restarts without progress, see worker_test.py; 1 is a mistake.
  rules = [x['action'] for x in made['spec']['failurePolicy']['rules']]
  assert rules == ['FailJobSet', 'RestartJobSetAndIgnoreMaxRestarts']
  assert 1 in job['podFailurePolicy']['rules'][0]['onExitCodes']['values']
  assert pod['serviceAccountName'] == 'trainer'
  assert pod['nodeSelector']['cloud.google.com/gke-tpu-topology'] == '4x4'
  (container,) = pod['containers']
  assert container['resources']['limits'] == {'google.com/tpu': 4}
  told = container['env'][0]['value']
  assert {'hosts=4', 'slices=2', 'seconds=259200'} <= {*told.splitlines()}
  assert 'argument=--config.seed=2\n' in told and 'delete' not in told
  with pytest.raises(errors.UserError, match='GKE does not offer'):
    make('--topology=v3-32')


def test_nodes_are_there_for_pods_alone_and_their_deletion_is_told():
  text, *_ = make('--slices=2', '--topology=tpu7x-32', '--spot')
  assert '# gcloud compute resource-policies create workload-policy r' in text
  lines = re.findall('^# gcloud container node-pools (.*)', text, re.MULTILINE)
  words = [line.split() for line in lines]
  assert [' '.join(x[:2]) for x in words] == [
    *('create r-0', 'create r-1', 'delete r-0', 'delete r-1')
  ]
  elastic = {'--num-nodes=0', '--enable-autoscaling', '--max-nodes=4'}
  elastic |= {'--placement-policy=r', '--disk-type=hyperdisk-balanced'}
  assert all(elastic | {'--spot'} <= {*x} for x in words[:2])
  place = {'--cluster=CLUSTER', '--location=REGION'}
  assert all(place <= {*x} for x in words)


# Exit codes of the program, and how often it is started.
@pytest.mark.parametrize('code, times', [(0, 1), (1, 1), (70, 4)])
def test_skypilot_tries_again_unless_it_is_a_mistake(code, times, tmp_path):
  made = yaml.safe_load((ROOT / 'launch/sky.yaml').read_text())
  (tmp_path / 'env/bin').mkdir(parents=True)
  path = tmp_path / 'env/bin/python'
  path.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/started; exit {code}')
  path.chmod(0o755)
  env = os.environ | {'HOME': str(tmp_path), 'CONFIG': 'c', 'WORKDIR': 'w'}
  done = subprocess.run(['bash', '-e', '-c', made['run']], env=env)
  assert done.returncode == code
  line = '-m bert_jax.main --config=c --workdir=w\n'
  assert (tmp_path / 'started').read_text() == line * times
