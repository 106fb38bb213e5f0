"""The manifest for GKE, its image, and the files of SkyPilot and XManager."""

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

from bert_jax import errors
from launch import archive, gke, tpu, world, xm

ROOT = pathlib.Path(archive.ROOT)
WORDS = ['gke', '--name=r', '--image=i', '--config=configs/tiny.py:smoke']
WORDS += ['--workdir=gs://bkt/r', '--topology=v6e-16']


def make(*more):
  """Returns (the manifest's text, its JobSet)."""
  yaml = pytest.importorskip('yaml')
  given, given.overrides = tpu.make_parser().parse_known_args([*WORDS, *more])
  text = gke.make_manifest(given, world.World())
  return text, yaml.safe_load(text)


@pytest.fixture(scope='module')
def check():
  """Returns a function that lists what is wrong with a JobSet, strictly."""
  yaml = pytest.importorskip('yaml')
  jsonschema = pytest.importorskip('jsonschema')
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
  return lambda value: [error.message for error in check.iter_errors(value)]


def _close(schema):
  """Lets a schema refuse the fields that it does not name."""
  for item in schema if isinstance(schema, list) else [*schema.values()]:
    if isinstance(item, dict | list):
      _close(item)
  if isinstance(schema, dict) and 'properties' in schema:
    if not schema.get('x-kubernetes-preserve-unknown-fields'):
      schema.setdefault('additionalProperties', False)


@pytest.mark.parametrize(
  'more',
  [
    ['--spot', '--queue=tpus', '--slices=2', '--service_account=trainer'],
    ['--topology=v4-32'],
    ['--topology=tpu7x-8', '--config.data.dir=gs://b/"q" \\ $x: {y}'],
  ],
)
@pytest.mark.filterwarnings('ignore::DeprecationWarning')
def test_manifest_follows_the_schemas_of_jobset_and_kubernetes(check, more):
  made = make(*more)[1]
  assert check(made) == []
  made['spec']['failurePolicy']['maxRestart'] = 3
  assert check(made)
  validate = pytest.importorskip('kubernetes_validate')
  spec = made['spec']['replicatedJobs'][0]['template']['spec']
  job = {'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': 'r'}}
  validate.validate({**job, 'spec': spec}, '1.32', strict=True)
  spec['parallelisms'] = 3
  with pytest.raises(validate.ValidationError):
    validate.validate({**job, 'spec': spec}, '1.32', strict=True)


def test_one_job_per_slice_and_one_pod_per_host():
  more = '--slices=2', '--service_account=trainer', '--config.seed=2'
  text, made = make(*more)
  (jobs,) = made['spec']['replicatedJobs']
  spec, pod = (
    jobs['template']['spec'],
    jobs['template']['spec']['template']['spec'],
  )
  assert jobs['replicas'] == 2
  assert spec['parallelism'] == spec['completions'] == 4
  assert pod['serviceAccountName'] == 'trainer'
  assert pod['nodeSelector']['cloud.google.com/gke-tpu-topology'] == '4x4'
  (container,) = pod['containers']
  assert container['resources']['limits'] == {'google.com/tpu': 4}
  told = container['env'][0]['value']
  assert {'hosts=4', 'slices=2', 'seconds=259200'} <= {*told.splitlines()}
  assert 'argument=--config.seed=2\n' in told and 'delete' not in told
  assert text.startswith('# gcloud container node-pools create r-0')
  text, _ = make('--topology=tpu7x-32', '--spot')
  assert '# gcloud compute resource-policies create workload-policy r' in text
  assert '--placement-policy=r --disk-type=hyperdisk-balanced --spot' in text
  with pytest.raises(errors.UserError, match='GKE does not offer'):
    make('--topology=v3-32')


def test_restarts_count_only_without_progress_and_mistakes_are_final():
  spec = make()[1]['spec']
  # Counted by the pods themselves, see worker_test.py.
  rules, jobs = spec['failurePolicy']['rules'], spec['replicatedJobs']
  wanted = ['FailJobSet', 'RestartJobSetAndIgnoreMaxRestarts']
  assert [rule['action'] for rule in rules] == wanted
  assert rules[0]['onJobFailureReasons'][0] == 'PodFailurePolicy'
  assert 'onJobFailureReasons' not in rules[1]
  (rule,) = jobs[0]['template']['spec']['podFailurePolicy']['rules']
  assert rule['action'] == 'FailJob' and 1 in rule['onExitCodes']['values']


REFUSED = {
  '--topology=v3-32': 'GKE does not offer',
  '--max_hours=inf': 'must be above 0 and finite',
  '--workdir=/tmp/x': 'gs://BUCKET/FOLDER',
}


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
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_file_for_skypilot_is_read_by_skypilot():
  yaml = pytest.importorskip('yaml')
  made = yaml.safe_load((ROOT / 'launch/sky.yaml').read_text())
  assert made['envs']['WORKDIR'] is None
  # Its restarts would try a mistake again, too.
  assert 'job_recovery' not in made['resources']
  python = os.environ.get('BERT_JAX_SKYPILOT')  # an interpreter that has it
  if python:
    code = (
      'import sky; sky.Task.from_yaml_config({!r}, [("WORKDIR", "gs://b")])'
    )
    subprocess.run([python, '-c', code.format(made)], check=True)


# Exit codes of the program, and how often it is started.
@pytest.mark.parametrize('code, times', [(0, 1), (1, 1), (70, 4), (75, 4)])
def test_run_of_skypilot_is_tried_again_unless_it_is_a_mistake(
  code, times, tmp_path
):
  yaml = pytest.importorskip('yaml')
  made = yaml.safe_load((ROOT / 'launch/sky.yaml').read_text())
  (tmp_path / 'env/bin').mkdir(parents=True)
  path = tmp_path / 'env/bin/python'
  path.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/started; exit {code}')
  path.chmod(0o755)
  env = os.environ | {'HOME': str(tmp_path), 'CONFIG': 'c', 'WORKDIR': 'w'}
  for options in ([], ['-e']):
    (tmp_path / 'started').unlink(missing_ok=True)
    done = subprocess.run(['bash', *options, '-c', made['run']], env=env)
    assert done.returncode == code
    line = '-m bert_jax.main --config=c --workdir=w\n'
    assert (tmp_path / 'started').read_text() == line * times


def list_runs(*more):
  words = ['--where=local', '--config=configs/tiny.py', '--workdir=runs']
  return xm.list_runs(xm.make_parser().parse_args([*words, *more]))


def test_sweeps_are_combined_and_each_run_has_its_own_folder():
  found = list_runs('--sweep=optimizer.learning_rate=1,2', '--sweep=seed=1')
  assert len(found) == 2
  assert found[1] == [
    *('-m', 'bert_jax.main', '--config=configs/tiny.py'),
    '--workdir=runs/2_learning_rate=2_seed=1',
    *('--config.optimizer.learning_rate=2', '--config.seed=1'),
  ]
  assert len({run[3] for run in list_runs('--sweep=data.dir=a/b,ab')}) == 2
  more = '--where=tpu', '--sweep=seed=0,1', '--', '--zone=us-east5-b'
  path, *words = list_runs(*more)[1]
  assert path.endswith('launch/tpu.py') and '--zone=us-east5-b' in words
  assert words[:3] == ['run', '--name=sweep-2', '--yes']
  for text in ('seed', '=1', 'seed=', 'seed=1,'):
    with pytest.raises(ValueError, match='FIELD=VALUE'):
      list_runs(f'--sweep={text}')
