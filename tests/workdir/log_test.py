"""Tests of the log."""

import errno
import os

import pytest
from tensorboard.backend.event_processing import event_accumulator

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.workdir import log
from tests import environment, processes


def write(path, first, steps):
  with log.Log(str(path), first) as rows:
    for step in steps:
      rows.write('train', step, {'loss': 10.0 - step, 'note': 'text'})
      if step % 4 == 0:
        rows.write('eval', step, {'loss': 1.0})


def test_rows_come_back(folder):
  write(folder, 0, [2, 4])
  assert log.read(f'{folder}/metrics.jsonl') == [
    {'kind': 'train', 'step': 2, 'loss': 8.0, 'note': 'text'},
    {'kind': 'train', 'step': 4, 'loss': 6.0, 'note': 'text'},
    {'kind': 'eval', 'step': 4, 'loss': 1.0},
  ]


def test_a_resumed_run_repeats_no_row(folder):
  write(folder, 0, [2, 4, 6])
  with log.Log(folder, 4) as rows:
    rows.write('eval', 4, {'loss': 1.0})
    rows.write('train', 6, {'loss': 4.0})
  found = [(r['kind'], r['step']) for r in log.read(f'{folder}/metrics.jsonl')]
  assert found == [('train', 2), ('train', 4), ('eval', 4), ('train', 6)]


def test_what_is_flushed_survives_a_kill(remote):
  rows = log.Log(remote, 0)
  rows.write('train', 2, {'loss': 8.0})
  rows.flush()
  rows.write('train', 4, {'loss': 7.0})
  found = log.read(f'{remote}/metrics.jsonl')
  assert [r['step'] for r in found] == [2]
  assert len(storage.list_names(f'{remote}/tensorboard')) == 1
  rows.__exit__(None, None, None)


def test_an_event_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
  def fail(*args):
    raise OSError(errno.EIO, os.strerror(errno.EIO))

  said = f'log {tmp_path}/metrics.jsonl: Input/output error'
  with pytest.raises(OSError, match=said):
    with log.Log(str(tmp_path), 0) as rows:
      monkeypatch.setattr(log._EventFile, 'write', fail)
      rows.write('train', 2, {'loss': 8.0})


def away(*paths):
  raise OSError(errno.EIO, 'the bucket is away')


@pytest.mark.parametrize(
  ('error', 'told'),
  [(KeyError('first'), KeyError), (errors.Interrupted(15), OSError)],
)
def test_a_signal_alone_is_replaced_by_an_error_of_the_log(
  remote, monkeypatch, error, told
):
  monkeypatch.setattr(storage, 'write', away)
  with pytest.raises(told):
    with log.Log(remote, 0):
      raise error


@pytest.mark.parametrize(
  'line',
  [
    *('3', '[]', '{"kind": "train"}', '{"kind": 1, "step": 2}', '\x00'),
    *('{"kind": "tra', '[' * 100_000),
  ],
)
def test_a_damaged_or_torn_line_is_left_out(tmp_path, line):
  write(tmp_path, 0, [2, 4])
  path = tmp_path / 'metrics.jsonl'
  path.write_text(f'{line}\n{path.read_text()}{line}')
  assert len(log.read(str(path))) == 3
  with log.Log(str(tmp_path), 2):
    pass
  assert [row['step'] for row in log.read(str(path))] == [2]


def test_no_link_is_followed(tmp_path):
  os.symlink(tmp_path / 'mine', tmp_path / 'metrics.jsonl')
  with pytest.raises(errors.UserError, match='metrics.jsonl: it is a link'):
    log.Log(str(tmp_path), 0)
  assert not (tmp_path / 'mine').exists()


def test_seconds_are_of_training_and_evaluation():
  rows = [
    {'kind': 'train', 'step': 10, 'sequences_per_second': 4.0},
    {'kind': 'train', 'step': 20, 'sequences_per_second': 4.0},
    {'kind': 'eval', 'step': 20, 'seconds': 5.0},
  ]
  # 80 rows and 40 rows at 4 a second.
  assert log.count_seconds(rows, (10, 10), (8, 4)) == 20 + 10 + 5


def test_tensorboard_shows_each_step_once(tmp_path):
  write(tmp_path, 0, [1, 2, 3])
  write(tmp_path, 1, [2, 9])  # resumed: the later steps are logged again
  board = event_accumulator.EventAccumulator(str(tmp_path / 'tensorboard'))
  board.Reload()
  assert board.Tags()['scalars'] == ['train/loss']
  curve = [(point.step, point.value) for point in board.Scalars('train/loss')]
  assert curve == [(1, 9.0), (2, 8.0), (9, 1.0)]


_CODE = """
import sys
from bert_jax.workdir import log

with log.Log(sys.argv[1], 0) as rows:
  rows.write('train', 1, {'loss': 1.0})
"""


def test_a_log_does_not_import_pytorch(tmp_path):
  (tmp_path / 'torch.py').write_text('raise SystemExit("PyTorch is imported")')
  env = environment.for_devices(1)
  env['PYTHONPATH'] = os.pathsep.join([str(tmp_path), processes.ROOT])
  done = processes.run_code(_CODE, str(tmp_path), env=env)
  assert done.returncode == 0, done.stderr


def append(folder, name, text):
  path = os.path.join(folder, name)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'a') as file:
    file.write(text)


def test_what_grew_is_uploaded_whole_and_fetched_by_the_next(remote):
  first = log.Mirror(remote, ['log'])
  append(first.folder, 'log', 'one\n')
  append(first.folder, 'deep/events', 'x')
  first.flush()
  append(first.folder, 'log', 'two\n')
  first.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\n'
  assert storage.read(f'{remote}/deep/events') == b'x'
  assert not os.path.exists(first.folder)
  second = log.Mirror(remote, ['log'])
  append(second.folder, 'log', 'three\n')
  second.close()
  assert storage.read(f'{remote}/log') == b'one\ntwo\nthree\n'


def test_only_what_has_changed_is_uploaded(remote, monkeypatch):
  uploaded = []
  monkeypatch.setattr(
    storage, 'write', lambda path, content: uploaded.append(path)
  )
  found = log.Mirror(remote)
  append(found.folder, 'a', '1')
  append(found.folder, 'b', '1')
  found.flush()
  append(found.folder, 'b', '2')
  found.close()
  assert uploaded == [f'{remote}/{x}' for x in ('a', 'b', 'b')]
