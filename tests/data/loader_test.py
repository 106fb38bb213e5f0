"""Tests of the order of the data, and of what reads it ahead."""

import functools
import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import loader, records
from tests.data import made


def test_every_epoch_holds_every_record_once_in_another_order():
  record, epoch = loader.order(3, np.arange(21), 7)
  assert epoch.tolist() == [0] * 7 + [1] * 7 + [2] * 7
  orders = [tuple(record[i : i + 7].tolist()) for i in (0, 7, 14)]
  assert all(sorted(o) == list(range(7)) for o in orders)
  assert len(set(orders)) == 3


def test_a_row_does_not_depend_on_how_many_are_asked_for():
  whole, _ = loader.order(3, np.arange(100), 7)
  parts = [loader.order(3, np.arange(r, r + 1), 7)[0][0] for r in range(100)]
  assert whole.tolist() == parts


def test_far_rows_come_at_once():
  start = time.monotonic()
  loader.order(3, np.arange(10**15, 10**15 + 256), 10**9)
  assert time.monotonic() - start < 0.1


def prepared(tmp_path, shards=3):
  """Writes prepared data: shard k holds k + 1 pairs ([10 + k], [9])."""
  files = []
  for k in range(shards):
    path = tmp_path / f'train-{k}'
    row = made.record([([10 + k], [9], False)])
    records.write(str(path), [row] * (k + 1))
    files.append(
      {
        'name': path.name,
        'records': k + 1,
        'bytes': path.stat().st_size,
        'sha256': hashlib.sha256(path.read_bytes()).hexdigest(),
      }
    )
  vocab = tmp_path / 'vocab.txt'
  vocab.write_text('[PAD]\n')
  manifest = {
    'recipe': {'vocab_size': 20, 'pack': 1},
    'vocab_sha256': hashlib.sha256(vocab.read_bytes()).hexdigest(),
    'lengths': {'8': {}},
    'shards': [{'split': 'train', 'files': {'8': f}} for f in files],
  }
  (tmp_path / 'manifest.json').write_text(json.dumps(manifest))
  return str(tmp_path)


def test_a_split_is_what_the_manifest_lists(tmp_path):
  split = loader.open_split(prepared(tmp_path), 'train', 8)
  assert (len(split.reader), split.length) == (6, 8)
  rows = split.reader.rows(np.array([0, 1, 5]), 8, cls_id=2, sep_id=3)
  assert rows['input_ids'][:, 1].tolist() == [10, 11, 12]
  with pytest.raises(errors.UserError, match='length 16, only for 8'):
    loader.open_split(str(tmp_path), 'train', 16)


def test_a_changed_file_is_refused_at_the_start(tmp_path):
  directory = prepared(tmp_path)
  path = tmp_path / 'train-1'
  os.rename(path, tmp_path / 'away')
  with pytest.raises(errors.UserError, match='train-1 cannot be read'):
    loader.open_split(directory, 'train', 8)
  path.write_bytes((tmp_path / 'away').read_bytes()[:-1])
  with pytest.raises(errors.UserError, match=r'train-1 has \d+ bytes, its man'):
    loader.open_split(directory, 'train', 8)
  # As large, but with another number of records.
  path.write_bytes((tmp_path / 'train-0').read_bytes())
  assert path.stat().st_size == (tmp_path / 'away').stat().st_size
  with pytest.raises(errors.UserError, match='train-1 holds 1 records, .* 2'):
    loader.open_split(directory, 'train', 8)


def test_corrupt_records_are_skipped_on_request(tmp_path):
  directory = prepared(tmp_path)
  with open(tmp_path / 'train-0', 'r+b') as file:
    whole = file.read()
    file.seek(whole.index(b'\x0a\x00\x09\x00'))  # the texts
    file.write(b'\xff')
  split = loader.open_split(directory, 'train', 8)
  with pytest.raises(errors.UserError, match='record 0 of .*train-0 cannot'):
    split.reader.rows(np.array([1, 0]), 8, 2, 3)
  split = loader.open_split(directory, 'train', 8, skip_corrupt=True)
  rows = split.reader.rows(np.array([1, 0]), 8, 2, 3)
  assert rows['input_mask'].sum(1).tolist() == [5, 0]
  assert split.reader.skipped == 1


def test_verify_names_the_file_with_a_flipped_bit(tmp_path):
  directory = prepared(tmp_path)
  size = sum((tmp_path / f'train-{k}').stat().st_size for k in range(3))
  assert loader.verify(directory) == size
  for name in ('train-2', 'vocab.txt'):
    path = tmp_path / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(errors.UserError, match=f'{name} is not as it was made'):
      loader.verify(directory)
    path.write_bytes(whole)
  loader.verify(directory)


def square(t):
  return {'t': np.full(300_000, t * t)}  # more than a pipe holds


def broken_at(t, error, step):
  if step == t:
    raise error
  return step


def killed_at(t, step):
  if step == t:
    os.kill(os.getpid(), signal.SIGKILL)
  return step


WORKERS = pytest.mark.parametrize('workers', [0, 2])


@WORKERS
def test_prefetch_keeps_the_order_and_ends(workers):
  made = [b['t'][-1] for b in loader.prefetch(square, 3, 8, workers)]
  assert made == [9, 16, 25, 36, 49]
  assert list(loader.prefetch(square, 3, 3, workers)) == []
  assert not multiprocessing.active_children()


@WORKERS
def test_prefetch_raises_where_the_batch_is_awaited(workers):
  error = errors.UserError('broken record')
  make = functools.partial(broken_at, 2, error)
  batches = loader.prefetch(make, 0, 5, workers)
  assert [next(batches), next(batches)] == [0, 1]
  with pytest.raises(errors.UserError, match='broken record'):
    next(batches)
  assert not multiprocessing.active_children()


def test_a_bug_in_a_process_keeps_its_traceback():
  make = functools.partial(broken_at, 0, KeyError('wrong'))
  with pytest.raises(RuntimeError, match="in broken_at(.|\n)*KeyError: 'wrong"):
    next(loader.prefetch(make, 0, 5, 2))


@WORKERS
def test_closing_prefetch_ends_its_threads_and_processes(workers):
  before = threading.active_count(), len(os.listdir('/dev/fd'))
  batches = loader.prefetch(square, 0, 10**9, workers)
  next(batches)
  assert threading.active_count() == before[0] + 1
  assert len(multiprocessing.active_children()) == workers
  batches.close()
  assert not multiprocessing.active_children()
  # One more is the pipe of Python's own resource tracker.
  after = threading.active_count(), len(os.listdir('/dev/fd'))
  assert before[0] == after[0] and after[1] <= before[1] + 1


def stuck_at(t, step):
  if step == t:
    signal.pause()
  return step


def test_closing_prefetch_does_not_wait_for_a_process_that_is_stuck():
  batches = loader.prefetch(functools.partial(stuck_at, 1), 0, 9, 1)
  next(batches)
  batches.close()
  assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_an_error():
  batches = loader.prefetch(functools.partial(killed_at, 3), 0, 9, 2)
  assert [next(batches) for _ in range(3)] == [0, 1, 2]
  with pytest.raises(errors.UserError, match='a process .* died'):
    next(batches)
  assert not multiprocessing.active_children()


def test_a_process_that_is_killed_amid_a_batch_is_an_error():
  batches = loader.prefetch(square, 0, 10**9, 2)
  next(batches)
  for process in multiprocessing.active_children():
    os.kill(process.pid, signal.SIGKILL)
  with pytest.raises(errors.UserError, match='a process .* died'):
    for _ in batches:
      pass


def parent_of_two(pids):
  batches = loader.prefetch(square, 0, 10**9, 2)
  next(batches)
  pids.send([p.pid for p in multiprocessing.active_children()])
  time.sleep(60)


def test_processes_end_when_their_parent_is_killed():
  context = multiprocessing.get_context('spawn')
  pipe, theirs = context.Pipe(duplex=False)
  parent = context.Process(target=parent_of_two, args=(theirs,))
  parent.start()
  pids = pipe.recv()
  assert len(pids) == 2
  parent.kill()
  parent.join()
  end = time.monotonic() + 20
  while any(os.path.exists(f'/proc/{pid}/exe') for pid in pids):
    assert time.monotonic() < end
    time.sleep(0.05)


def test_processes_read_the_same_batches(tmp_path):
  split = loader.open_split(prepared(tmp_path), 'train', 8)
  make = functools.partial(rows_of_step, split)
  thread = list(loader.prefetch(make, 0, 4))
  processes = list(loader.prefetch(make, 0, 4, 2))
  for a, b in zip(thread, processes, strict=True):
    assert a.keys() == b.keys()
    for name in a:
      assert (a[name] == b[name]).all()


def rows_of_step(split, step):
  record, _ = loader.order(1, np.arange(5) + 5 * step, len(split.reader))
  return split.reader.rows(record, split.length, 2, 3)
