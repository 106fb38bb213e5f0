"""Preparation that was interrupted, and what has changed meanwhile."""

import hashlib
import os
import pathlib
import shutil

import fsspec
import pytest

from bert_jax.data import prepare, shards
from bert_jax.tokenization import tokenizer
from tests.data.preparation import (
  ONE,
  Stopped,
  digest,
  make_recipe,
  write_corpus,
  write_vocab,
)


def test_an_interrupted_preparation_continues_and_repeats_nothing(
  corpus, prepared, tmp_path
):
  output = str(tmp_path / 'stopped')
  done = []

  def stop_after(n):
    def run(fn, jobs):
      for job in jobs:
        if len(done) == n:
          raise Stopped
        before = set(os.listdir(output + '.partial/work'))
        result = fn(*job)
        if set(os.listdir(output + '.partial/work')) - before:
          done.append(job[0].name)
        yield result

    return run

  # One read, two counts of words, then three shards.
  for n in range(7):
    try:
      prepare.prepare(make_recipe(corpus), output, stop_after(n))
    except Stopped:
      assert not os.path.exists(output) and len(done) == n
  assert len(done) == 6
  assert digest(output) == digest(prepared[0])


def test_a_kill_just_before_the_end_loses_nothing(corpus, prepared, tmp_path):
  output = str(tmp_path / 'data')
  shutil.copytree(prepared[0], output + '.partial')
  os.makedirs(output + '.partial/work')  # half removed
  assert prepare.prepare(make_recipe(corpus), output) == prepared[1]
  assert digest(output) == digest(prepared[0])


@pytest.mark.parametrize('ending', ['.json', '.npy', '.arrayrecord'])
def test_what_a_power_cut_left_empty_is_made_again(
  ending, corpus, prepared, tmp_path
):
  output = str(tmp_path / 'data')

  def stop_before_the_end(fn, jobs):
    yield from [fn(*job) for job in jobs]
    if fn is shards.make:
      raise Stopped

  with pytest.raises(Stopped):
    prepare.prepare(make_recipe(corpus), output, stop_before_the_end)
  found = [
    path
    for path in pathlib.Path(output + '.partial').rglob(f'*{ending}')
    if path.name.startswith(('train-', 'heldout-'))
  ]
  assert len(found) > 2
  for path in found:
    path.write_bytes(b'')
  prepare.prepare(make_recipe(corpus), output, ONE)
  assert digest(output) == digest(prepared[0])


def _stop_after_reading(fn, jobs):
  """A runner that is interrupted at the end of the first stage."""
  for job in jobs:
    fn(*job)
  raise Stopped


def test_input_that_changes_during_an_interruption_is_read_anew(
  tmp_path, prepared
):
  path = write_corpus(tmp_path / 'corpus.txt', seed=1)
  output = str(tmp_path / 'data')

  with pytest.raises(Stopped):
    prepare.prepare(make_recipe(path), output, _stop_after_reading)
  write_corpus(tmp_path / 'corpus.txt', seed=0)
  prepare.prepare(make_recipe(path), output, ONE)
  made, reference = digest(output), digest(prepared[0])
  for name in ('manifest.json', 'DATA_CARD.md'):  # they hold the path
    made.pop(name), reference.pop(name)
  assert made == reference


def test_a_bucket_text_that_changes_during_an_interruption_is_read_anew(
  corpus, tmp_path
):
  store = fsspec.filesystem('memory')
  text = pathlib.Path(corpus).read_bytes()
  recipe = make_recipe('memory://changing/a.txt', lengths=(32,))

  store.pipe('/changing/a.txt', text.replace(b'bird', b'wolf'))
  with pytest.raises(Stopped):
    prepare.prepare(recipe, str(tmp_path / 'data'), _stop_after_reading)
  store.pipe('/changing/a.txt', text)
  made = prepare.prepare(recipe, str(tmp_path / 'data'), ONE)
  [file] = made['inputs'][0]['files']
  assert file['sha256'] == hashlib.sha256(text).hexdigest()


def test_a_vocabulary_that_changes_during_an_interruption_is_used(
  corpus, tmp_path
):
  path = tmp_path / 'vocab.txt'
  recipe = make_recipe(corpus, vocab=str(path), vocab_size=7, lengths=(32,))
  output = str(tmp_path / 'data')

  def stop_in_the_second_stage(fn, jobs):
    if hasattr(jobs[0][0], 'split'):
      raise Stopped
    return (fn(*job) for job in jobs)

  write_vocab(path, 'the', 'bird')
  with pytest.raises(Stopped):
    prepare.prepare(recipe, output, stop_in_the_second_stage)
  write_vocab(path, 'the', 'fish')
  prepare.prepare(recipe, output, ONE)
  assert tokenizer.read_vocab(f'{output}/vocab.txt')[5:] == ('the', 'fish')
