"""Tests of training on many hosts, with two processes on this machine."""

import re
import shutil

import jax
import pytest

from bert_jax import errors
from bert_jax.parallel import agreement, distributed
from bert_jax.runtime import bucket
from tests import processes, training


@pytest.fixture(scope='module')
def pair(tmp_path_factory):
  """Returns (workdir, what each of two processes said)."""
  workdir = tmp_path_factory.mktemp('pair')
  return workdir, processes.run_pair('tests.host', workdir)


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
  """Returns the directory of the same training in this process."""
  workdir = tmp_path_factory.mktemp('alone')
  training.train(training.small_config(), workdir)
  return workdir


def check_equal(found, expected):
  assert [r['step'] for r in found] == [r['step'] for r in expected]
  for a, b in zip(found, expected, strict=True):
    assert a['loss'] == pytest.approx(b['loss'], rel=1e-6)
    assert a['mlm_accuracy'] == b['mlm_accuracy']
    # Tokens are those of all processes.
    x, y = (
      r.get('tokens_per_second', 1) / r.get('sequences_per_second', 1)
      for r in (a, b)
    )
    assert x == pytest.approx(y, rel=1e-9)


@pytest.mark.slow
def test_each_process_reads_its_half_and_learns_of_the_other(pair):
  """The halves make the global batch; predictions of all rows are in order."""
  _, said = pair
  for (_, stderr), rows in zip(
    said, ('[0, 1, 2, 3]', '[4, 5, 6, 7]'), strict=True
  ):
    for line in (
      f'rows: {rows}',
      'batch: True',
      'predictions: True',
      'largest: 11',
    ):
      assert f'{line}\n' in stderr
    assert 'refused: host 1 has seed=4 (host 0 has 3). Start' in stderr


@pytest.mark.slow
def test_two_processes_train_like_one(pair, alone):
  for kind in ('train', 'eval'):
    check_equal(training.rows_of(pair[0], kind), training.rows_of(alone, kind))


@pytest.mark.slow
def test_two_processes_save_together_when_the_first_one_finds_it_time(pair):
  # It is always time: the vote after update 1 is answered after 2, and so on.
  saved = [r['step'] for r in training.rows_of(pair[0], 'checkpoint')]
  assert saved == [2, 3, 4, 5, 6]


@pytest.mark.slow
def test_only_the_first_process_talks(pair):
  _, ((first, _), (second, _)) = pair
  assert 'held-out at step 6' in first
  # Gloo prints from C++, in pieces that its threads mix.
  gloo = (
    r'\[Gloo\] Rank|is connected to|peer ranks\.'
    r'|Expected number of connected peer ranks is :|\d+'
  )
  assert not re.sub(gloo, '', second).strip()


@pytest.mark.slow
def test_one_process_goes_on_where_two_stopped(pair, alone, tmp_path):
  workdir = tmp_path / 'run'
  shutil.copytree(pair[0], workdir)
  shutil.rmtree(workdir / 'checkpoints' / '6')
  training.train(training.small_config(), workdir)
  check_equal(
    training.rows_of(workdir, 'train'), training.rows_of(alone, 'train')
  )
  ran = training.rows_of(workdir, 'run')
  assert [r['step'] for r in ran] == [0, 5]


@pytest.mark.parametrize(
  'given', [('host:1', 2, None), (None, 2, 0), ('host', 2, 0), ('host:1', 2, 2)]
)
def test_half_an_address_is_refused(given):
  with pytest.raises(errors.UserError, match='give HOST:PORT of process 0'):
    distributed.start(*given)


def test_one_process_needs_no_others():
  distributed.start(None, None, None)
  distributed.start(None, 1, None)
  agreement.check_same({'seed': 0})
  assert distributed.find_largest(7) == 7


@pytest.fixture
def on_tpu(monkeypatch):
  """Lets jax take this for a TPU VM, and not find its hosts by an error."""

  def fail(error):
    def initialize(*args, **kwargs):
      raise error

    monkeypatch.setattr(jax.distributed, 'initialize', initialize)

  for name in (*distributed._LISTS, 'MEGASCALE_COORDINATOR_ADDRESS'):
    monkeypatch.delenv(name, raising=False)
  monkeypatch.setattr(distributed, '_has_tpu', lambda: True)
  monkeypatch.setattr(jax.config, 'update', lambda name, value: None)
  return fail


# requests.ConnectionError is one, and its text is as long.
NO_SERVER = OSError("HTTPConnectionPool(host='metadata.google.internal')")
NO_CLUSTER = ValueError('coordinator_address should be defined.')


@pytest.mark.parametrize('error', [NO_SERVER, NO_CLUSTER])
def test_a_tpu_vm_that_nobody_tells_of_other_hosts_trains_alone(
  error, on_tpu, monkeypatch, capsys
):
  on_tpu(error)
  distributed.start(None, None, None)
  (line,) = capsys.readouterr().out.splitlines()
  assert 'training on this host alone' in line and '--num_processes=1' in line
  monkeypatch.setattr(jax, 'process_count', lambda: 4)  # one of a slice
  with pytest.raises(errors.UserError, match='a slice of 4 hosts, but no meta'):
    distributed.start(None, None, None)


@pytest.mark.parametrize(
  'name, value, error',
  [
    ('TPU_WORKER_HOSTNAMES', 'a,b', NO_SERVER),
    ('TPU_PROCESS_ADDRESSES', 'a:1,b:1', NO_CLUSTER),
    ('MEGASCALE_COORDINATOR_ADDRESS', 'a:1', NO_CLUSTER),
    ('UNRELATED', '', RuntimeError('Barrier timed out\nmore')),
  ],
)
def test_hosts_that_are_named_and_not_found_are_an_error(
  name, value, error, on_tpu, monkeypatch
):
  on_tpu(error)
  monkeypatch.setenv(name, value)
  with pytest.raises(errors.UserError) as caught:
    distributed.start(None, None, None)
  why = errors.first_line(error)
  assert f'connect to the other processes: {why}. Start' in str(caught.value)
  assert '--num_processes=1 to train on' in str(caught.value)


class Ended(BaseException):
  """Raised instead of ending this process."""


@pytest.fixture
def waits(monkeypatch):
  """Returns the times that this process waits, of several, before it leaves.

  If it begins with an error, the wait raises that.
  """
  found = []

  def wait(name, seconds=distributed._DAY):
    found.append(seconds)
    if isinstance(found[0], Exception):
      raise found[0]

  def end(code):
    raise Ended(code)

  monkeypatch.setattr(jax, 'process_count', lambda: 2)
  monkeypatch.setattr(distributed, 'barrier', wait)
  monkeypatch.setattr(distributed.os, '_exit', end)
  return found


def leave_after(error):
  with distributed.leaving_together():
    raise error


def test_who_ends_like_all_hosts_waits_while_host_0_tries_a_bucket(waits):
  with distributed.leaving_together():
    pass
  with pytest.raises(SystemExit, match='143'):
    leave_after(errors.Interrupted(15, everywhere=True))
  # Log and status, one after the other.
  assert len(waits) == 2 and min(waits) > 10 * bucket.PATIENCE


def test_an_error_of_all_hosts_is_said_and_ends_them(waits, capsys):
  with pytest.raises(SystemExit, match='1'):
    leave_after(errors.UserError('host 1 has another seed.'))
  assert waits == [20]
  assert capsys.readouterr().err == 'error: host 1 has another seed.\n'


@pytest.mark.parametrize(
  'error, code, said',
  [
    (errors.UserError('no disk.'), 1, 'error: no disk.\n'),
    (errors.Interrupted(15), 143, 'stopped: resume with the same command.'),
    (KeyError('x'), 70, "KeyError: 'x'\n"),
  ],
)
def test_an_error_of_one_host_ends_it_with_its_own_code(
  waits, error, code, said, capsys
):
  waits.append(jax.errors.JaxRuntimeError('DEADLINE_EXCEEDED'))
  with pytest.raises(Ended) as raised:
    leave_after(error)
  assert raised.value.args == (code,) and waits[1:] == [20]
  assert said in capsys.readouterr().err
