"""Tests of the data of a pre-training run."""

import functools
import os
import pickle
import shutil

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import dataset, manifest_file
from bert_jax.parallel import distributed
from bert_jax.pretraining import batches, finish, training_data
from bert_jax.runtime import storage
from bert_jax.train import task
from tests.pretraining.pretrain_test import make_config


def open_data(c, tmp_path):
  training_data.prepare_data(c, str(tmp_path))
  training_data.check_data(c, str(tmp_path))


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'data__vocab_size': 121}, 'vocab_size=120, the config'),
    ({'data__pack': 2}, 'pack=1, the config data.pack=2'),
    ({'data__lowercase': False}, 'lowercase=True, the config data.lowerc'),
    ({'phases__seq_length': (32, 48)}, 'of 32 and 64 tokens, none of 48'),
    (
      {'data__strip_accents': 'false'},
      'has strip_accents=True, the config data.strip_accents=false',
    ),
    ({'data__dir': 'nothing'}, 'nothing does not exist'),
  ],
)
def test_data_that_do_not_fit_the_config_are_refused(
  directory, tmp_path, changes, words
):
  c = make_config(**{'data__dir': directory, **changes})
  with pytest.raises(errors.UserError, match=words):
    open_data(c, tmp_path)


def test_another_vocabulary_is_refused(directory, tmp_path):
  folder = tmp_path / 'data'
  shutil.copytree(directory, folder)
  words = (folder / 'vocab.txt').read_text().replace('the\n', 'thy\n')
  (folder / 'vocab.txt').write_text(words)
  with pytest.raises(errors.UserError, match='not the vocabulary that the da'):
    open_data(make_config(data__dir=str(folder)), tmp_path)


def test_a_run_warns_of_text_that_was_not_utf8(directory, tmp_path, capsys):
  open_data(make_config(data__dir=directory), tmp_path)
  assert 'WARNING' not in capsys.readouterr().out
  made = manifest_file.read(directory) | {'cleaned': {'invalid_utf8': 368}}
  shutil.copytree(directory, tmp_path / 'data')
  manifest_file.write(str(tmp_path / 'data'), made)
  open_data(make_config(data__dir=str(tmp_path / 'data')), tmp_path)
  assert '\nWARNING: 368 sequences of bytes, most' in capsys.readouterr().out


@pytest.mark.parametrize('choice', ['auto', 'true', 'as_lowercase'])
def test_what_was_decided_of_accents_holds(directory, tmp_path, choice):
  open_data(
    make_config(data__dir=directory, data__strip_accents=choice), tmp_path
  )


HOSTS = 256


def copy_part(c, directory, host, folder):
  """Copies a host's records; returns their folder, and the bytes it reads."""
  read = []

  def read_together(path, size):
    read.append(distributed.find_share(size, host, HOSTS))
    return storage.read(path)

  whole = batches.Batches(c, directory, unread=True)
  wanted = whole.list_records(functools.partial(own_rows, host))
  part = dataset.name_part(folder, host, wanted)
  dataset.copy_part(directory, part, wanted, read_together)
  return part, sum(end - start for start, end in read)


def own_rows(host, size):
  each = size // HOSTS
  return np.arange(host * each, (host + 1) * each)


@pytest.mark.parametrize('pack', [1, 3])
def test_each_of_256_hosts_reads_its_share_for_the_same_batches(
  directories, tmp_path, pack
):
  c = make_config(
    data__pack=pack,
    phases__batch_size=(2 * HOSTS, HOSTS),
    phases__accumulate=(2, 1),
    phases__steps=(2, 1),
    optimizer__warmup_steps=1,
    objective__unigram_bias=True,
  )
  folder = shutil.copytree(directories[pack], tmp_path / 'data')
  whole = batches.Batches(c, str(folder))
  size = sum(
    os.path.getsize(folder / f['name'])
    for shard in manifest_file.read(str(folder))['shards']
    for n, f in shard['files'].items()
    if int(n) in c.phases.seq_length
  )
  for host in (0, 100, HOSTS - 1):
    part, read = copy_part(c, str(folder), host, str(folder))
    assert read <= 1.2 * size / HOSTS
    made = pickle.loads(pickle.dumps(batches.Batches(c, part)))
    for phase in task.list_phases(c):
      own = own_rows(host, phase.batch_size)
      few = own_rows(host, phase.eval_batch_size)
      for make, count, rows in (
        ('train_batch', phase.steps, own),
        ('eval_batch', whole.eval_batches(phase), few),
      ):
        for i in range(count):
          i += phase.first if make == 'train_batch' else 0
          expected = getattr(whole, make)(phase, i, rows)
          found = getattr(made, make)(phase, i, rows)
          for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    first = task.list_phases(c)[0]
    made.train_batch(first, 0)  # is shown whole
    np.testing.assert_array_equal(made.read_sample(), whole.read_sample())
    words = manifest_file.load_tokenizer(part)
    assert len(finish.choose_examples(c, part, words, batches.EXAMPLES)) == 3


def test_all_bytes_of_a_file_are_read_once():
  for size, count in ((1000, 256), (100, 256), (7, 2), (0, 3)):
    shares = [distributed.find_share(size, k, count) for k in range(count)]
    found = [x for start, end in shares for x in range(start, end)]
    assert found == [*range(size)]


def test_a_record_that_is_not_kept_is_not_replaced_by_another(
  directory, tmp_path
):
  folder = str(shutil.copytree(directory, tmp_path / 'data'))
  part = os.path.join(folder, 'host0')
  wanted = {('train', 32): np.array([0, 5])}
  dataset.copy_part(folder, part, wanted, lambda path, n: storage.read(path))
  reader = dataset.open_split(part, 'train', 32).reader
  assert reader.rows(np.array([5, 0]), 32, 2, 3)['input_ids'].shape == (2, 32)
  for number in (4, 6):
    with pytest.raises(KeyError, match='not all in'):
      reader.rows(np.array([0, number]), 32, 2, 3)
  with pytest.raises(errors.UserError, match='is not as it was made'):
    dataset.copy_part(folder, part, wanted, lambda path, n: bytes(n))
