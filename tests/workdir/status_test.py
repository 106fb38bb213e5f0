"""What a run says about itself to others."""

import json
import os
import signal
import time

import pytest

from bert_jax import errors
from bert_jax.runtime import storage
from bert_jax.workdir import status
from tests import waiting


def read(folder):
  return json.loads(storage.read(os.path.join(folder, 'status.json')))


def test_every_field_is_there_from_the_start_to_the_end(folder):
  with status.Status(folder, steps=30, phases=2) as s:
    begun = read(folder)
    assert begun.pop('time') == pytest.approx(time.time(), abs=60)
    assert begun.pop('host')
    assert begun == {
      'state': 'starting',
      'step': 0,
      'steps': 30,
      'phase': 0,
      'phases': 2,
      'loss': None,
      'held_out': None,
      'steps_per_second': None,
      'seconds_left': None,
      'checkpoint': None,
      'message': None,
      'exit_code': None,
    }
    s.follow(lambda: 10)
    s.note(state='running', step=10, phase=1)
    assert read(folder)['state'] == 'running'
    assert read(folder)['checkpoint'] == 10
    s.note(step=30, loss=2.5)
    assert read(folder)['step'] == 10  # the state is the same: by the thread
  found = read(folder)
  assert (found['state'], found['exit_code']) == ('done', 0)
  assert (found['step'], found['phase'], found['loss']) == (30, 1, 2.5)


def test_the_thread_writes_speed_and_time_left(tmp_path, monkeypatch):
  monkeypatch.setattr(status, '_SECONDS', 0.05)
  with status.Status(str(tmp_path), 100, 1) as s:
    s.note(state='running', step=0)
    waiting.until(lambda: s.note(step=10) or read(tmp_path)['steps_per_second'])
    found = read(tmp_path)
  assert found['seconds_left'] == pytest.approx(90 / found['steps_per_second'])


@pytest.mark.parametrize(
  ('error', 'expected'),
  [
    (errors.UserError('too long'), ('failed', 1, 'too long')),
    (
      errors.Interrupted(signal.SIGTERM),
      ('interrupted', 143, 'resume with the same command.'),
    ),
    (
      OSError(5, 'Input/output error'),
      ('failed', 70, 'OSError: Input/output error'),
    ),
    (ZeroDivisionError('by 0'), ('failed', 70, 'ZeroDivisionError: by 0')),
  ],
)
def test_the_end_is_named(tmp_path, error, expected):
  with pytest.raises(type(error)):
    with status.Status(str(tmp_path), 100, 1):
      raise error
  found = read(tmp_path)
  assert (found['state'], found['exit_code'], found['message']) == expected


def test_a_resumed_run_begins_where_it_was(tmp_path):
  with status.Status(str(tmp_path), 100, 1) as s:
    s.follow(lambda: 40)
    s.note(state='running', step=47, loss=3.0)
  with status.Status(str(tmp_path), 100, 1):
    found = read(tmp_path)
  assert (found['state'], found['step'], found['checkpoint']) == (
    'starting',
    47,
    40,
  )
  assert found['exit_code'] is None and found['message'] is None


@pytest.mark.parametrize(
  'content', ['', '{"step":', '[]', '{"checkpoint": "x"}']
)
def test_a_damaged_file_says_nothing(tmp_path, content):
  (tmp_path / 'status.json').write_text(content)
  with status.Status(str(tmp_path), 100, 1) as s:
    assert s.known is None
    assert read(tmp_path)['step'] == 0
