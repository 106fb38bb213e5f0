"""The manifest for GKE, its image, and the file of SkyPilot."""

import glob
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

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


def _close(schema):
  """Lets a schema refuse the fields that it does not name."""
  for item in schema if isinstance(schema, list) else [*schema.values()]:
    if isinstance(item, dict | list):
      _close(item)
  if isinstance(schema, dict) and 'properties' in schema:
    if not schema.get('x-kubernetes-preserve-unknown-fields'):
      schema.setdefault('additionalProperties', False)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_manifest_follows_the_schemas_of_jobset_and_kubernetes():
  jsonschema = pytest.importorskip('jsonschema')
  validate = pytest.importorskip('kubernetes_validate')
  root = os.environ.get('BERT_JAX_TEST_DATA', '')
  paths = glob.glob(os.path.join(root, 'jobset', 'crd.yaml*')) if root else []
  if not paths:
    pytest.skip('BERT_JAX_TEST_DATA names no directory with jobset/')
  with (lzma.open if paths[0].endswith('.xz') else open)(paths[0]) as file:
    (version,) = yaml.safe_load(file)['spec']['versions']
  schema = version['schema']['openAPIV3Schema']
  _close(schema)
  schema['properties']['metadata'] = {'type': 'object'}
  check = jsonschema.Draft4Validator(schema)
  job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'r'}}
  more = '--spot', '--queue=tpus', '--slices=2', '--service_account=trainer'
  text = '--config.data.dir=gs://b/"q" \\ $x: {y}'
  for words in (more, ('--topology=tpu7x-8', text)):
    _, made, job['spec'], _ = make(*words)
    assert [*check.iter_errors(made)] == []
    validate.validate(job, '1.32', strict=True)
    made['spec']['failurePolicy']['maxRestart'] = 3
    assert [*check.iter_errors(made)]
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


def test_image_is_built_from_the_archive(tmp_path):
  argv = [sys.executable, ROOT / 'launch/tpu.py', 'archive']
  with open(tmp_path / 'code.tar.gz', 'wb') as file:
    subprocess.run(argv, stdout=file, check=True)
  with tarfile.open(tmp_path / 'code.tar.gz') as tar:
    tar.extractall(tmp_path, filter='data')
  steps = (tmp_path / 'launch/Dockerfile').read_text()
  for line in re.findall(r'^COPY (.*) \S+$', steps, re.MULTILINE):
    assert all((tmp_path / source).exists() for source in line.split()), line
  if program := shutil.which('hadolint'):
    argv = [program, ROOT / 'launch/Dockerfile']
    subprocess.run(argv, check=True)


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
