"""Manifests for GKE, against the schemas of JobSet and of Kubernetes."""

import argparse
import glob
import json
import os

import pytest

from bert_jax import errors
from launch import commands, gke, jobset, slices


def make(topology='v6e-16', count=2, spot=True, queue='tpus'):
  """Returns a JobSet."""
  found = slices.parse(topology, count)
  arguments = ['--config=configs/large.py', '--workdir=gs://bkt/r']
  return jobset.make('r', 'img:1', arguments, found, spot, queue, 3600)


def read_definitions(*parts):
  """Returns `crd_schema.read` of definitions in the folder of test data."""
  crd_schema = pytest.importorskip('crd_schema')  # needs yaml and jsonschema
  root = os.environ.get('BERT_JAX_TEST_DATA', '')
  paths = glob.glob(os.path.join(root, *parts)) if root else []
  if not paths:
    pytest.skip(f'BERT_JAX_TEST_DATA names no directory with {parts[0]}/')
  return crd_schema.read(paths)


@pytest.fixture(scope='module')
def check():
  """Returns a function that lists what is wrong with a JobSet."""
  return read_definitions('jobset', 'crd.yaml.xz')


@pytest.mark.parametrize('spot', [True, False])
@pytest.mark.parametrize(
  'topology, count', [('v6e-16', 2), ('v5litepod-8', 1), ('v4-32', 1)]
)
def test_jobset_follows_the_schema_of_its_definition(
  check, topology, count, spot
):
  assert check(make(topology, count, spot)) == []


def test_misspelt_field_is_noticed(check):
  made = make()
  made['spec']['failurePolicy']['maxRestart'] = 3
  assert check(made)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_jobs_follow_the_schema_of_kubernetes():
  validate = pytest.importorskip('kubernetes_validate')
  spec = make()['spec']['replicatedJobs'][0]['template']['spec']
  job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'r'}}
  validate.validate({**job, 'spec': spec}, '1.32', strict=True)
  spec['parallelisms'] = 3
  with pytest.raises(validate.ValidationError):
    validate.validate({**job, 'spec': spec}, '1.32', strict=True)


def test_queues_follow_the_schemas_of_kueue():
  check = read_definitions('kueue', '*.yaml')
  made = jobset.make_queues('tpus', slices.parse('v6e-16', 2), 32)
  assert [check(value) for value in made] == [[], [], []]
  made[0]['spec']['nodeLabel'] = made[0]['spec'].pop('nodeLabels')
  made[1]['spec']['resourceGroups'][0]['flavors'][0]['resource'] = []
  made[2]['apiVersion'] = 'kueue.x-k8s.io/v1beta9'
  assert all(map(check, made))


def test_queue_and_jobset_are_in_the_same_namespace():
  *_, local = jobset.make_queues('tpus', slices.parse('v6e-16', 2), 32)
  assert 'namespace' not in local['metadata'] | make()['metadata']


def test_one_job_per_slice_and_one_pod_per_host():
  (jobs,) = make('v6e-16', 2)['spec']['replicatedJobs']
  spec = jobs['template']['spec']
  assert jobs['replicas'] == 2
  assert spec['parallelism'] == spec['completions'] == 4
  pod = spec['template']['spec']
  assert pod['nodeSelector']['cloud.google.com/gke-tpu-topology'] == '4x4'
  (container,) = pod['containers']
  assert container['resources']['limits'] == {'google.com/tpu': 4}


def test_what_gke_lacks_is_refused():
  with pytest.raises(errors.UserError, match='not offered by GKE'):
    make('v3-32', 1)


def test_quota_that_never_admits_the_run_is_refused():
  words = ['--name=r', '--image=i', '--config=c', '--workdir=gs://bkt/r']
  words += ['--topology=v6e-16', '--slices=2', '--queue=q', '--quota=31']
  with pytest.raises(errors.UserError, match='no run on 32 chips'):
    gke.main(words, pytest.fail)


@pytest.mark.parametrize('hours', ['inf', 'nan', '-1'])
def test_deadline_that_cannot_be_is_refused(hours):
  words = ['--name=r', '--image=i', '--config=c', '--workdir=gs://bkt/r']
  words += ['--topology=v6e-16', f'--max_hours={hours}']
  with pytest.raises(errors.UserError, match='must be more than 0 and finite'):
    gke.main(words, lambda argv: commands.Result(0, '{}'))


def test_yaml_says_what_the_data_say():
  yaml = pytest.importorskip('yaml')
  topology = slices.parse('v6e-16', 1)
  odd = {'a': 'yes', 'b': '4x4', 'c': 'x: y', 'd': [], 'e': {}, 'f': [[1], 2.5]}
  odd |= {'g': None, 'h': True, 'i': '1e3', 'j': "it's", 'k': [{'l': '-'}]}
  for value in (make(), *jobset.make_queues('tpus', topology, 16), odd):
    assert yaml.safe_load(jobset.to_yaml(value)) == value


def test_nothing_is_applied_that_the_server_refuses():
  asked = []

  def run(argv):
    asked.append(argv)
    return commands.Result(1, err='unknown field "spec.x"')

  with pytest.raises(errors.UserError, match='unknown field'):
    gke.apply(run, 'kind: JobSet\n')
  assert ['--dry-run=server' in argv for argv in asked] == [True]


def test_command_prints_queues_and_jobset(capsys):
  yaml = pytest.importorskip('yaml')
  words = ['--name=r', '--image=i', '--config=configs/tiny.py:smoke']
  words += ['--workdir=gs://bkt/r', '--topology=v6e-16', '--queue=q']
  checked = commands.Result(0, json.dumps({'checkpoint_every': 1}))
  gke.main([*words, '--quota=16', '--config.seed=2'], lambda argv: checked)
  found = [*yaml.safe_load_all(capsys.readouterr().out)]
  assert [item['kind'] for item in found] == [
    *('ResourceFlavor', 'ClusterQueue', 'LocalQueue', 'JobSet')
  ]
  assert '--config.seed=2' in str(found[-1])


def test_working_directory_on_a_disk_is_refused():
  given = argparse.Namespace(name='r', workdir='/tmp/x', overrides=[])
  with pytest.raises(errors.UserError, match='gs://BUCKET/FOLDER'):
    gke.make_documents(given)
