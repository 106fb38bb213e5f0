"""Preparation from and to a bucket."""

import pathlib

import pytest

from bert_jax import errors
from bert_jax.data import prepare
from bert_jax.runtime import files, storage
from tests.data.preparation import BEAM, ONE, Stopped, digest, make_recipe


@pytest.mark.slow
@pytest.mark.parametrize('driver', ['two workers', 'beam'])
def test_a_bucket_gets_the_same_bytes(corpus, prepared, remote, driver):
  if driver == 'beam':
    pytest.importorskip('apache_beam')
  runner = BEAM if driver == 'beam' else prepare.local_runner(2)
  made = prepare.prepare(make_recipe(corpus), f'{remote}/data', runner)
  assert made == prepared[1]
  assert digest(f'{remote}/data') == digest(prepared[0])
  assert storage.list_names(remote) == ['data', 'data.lock']


def test_a_preparation_in_a_bucket_continues(corpus, prepared, remote):
  done = []

  def stop_after(n):
    def run(fn, jobs):
      for job in jobs:
        if len(done) == n:
          raise Stopped
        done.append(job[0].name)
        yield fn(*job)

    return run

  for n in (1, 5):
    done.clear()
    with pytest.raises(Stopped):
      prepare.prepare(make_recipe(corpus), f'{remote}/data', stop_after(n))
    assert not storage.exists(f'{remote}/data')
  before = storage.list_names(f'{remote}/data.partial/work')
  assert sum(name.endswith('.json') for name in before) >= 3
  prepare.prepare(make_recipe(corpus), f'{remote}/data', ONE)
  assert digest(f'{remote}/data') == digest(prepared[0])


@pytest.mark.slow
def test_a_move_that_was_cut_off_in_a_bucket_is_finished(
  corpus, prepared, remote, monkeypatch
):
  with monkeypatch.context() as m:
    m.setattr(storage, 'delete', lambda path: 1 // 0)
    with pytest.raises(ZeroDivisionError):
      prepare.prepare(make_recipe(corpus), f'{remote}/data', ONE)
  assert prepare.prepare(make_recipe(corpus), f'{remote}/data', None)
  assert digest(f'{remote}/data') == digest(prepared[0])


def test_other_files_in_a_bucket_are_left_alone(corpus, remote):
  files.write_text(f'{remote}/data/mine', '')
  with pytest.raises(errors.UserError, match='and is not prepared data'):
    prepare.prepare(make_recipe(corpus), f'{remote}/data', ONE)
  assert storage.list_names(f'{remote}/data') == ['mine']


def test_the_text_may_lie_in_a_bucket(corpus, prepared, remote):
  files.write_text(f'{remote}/text/a.txt', pathlib.Path(corpus).read_text())
  made = prepare.prepare(
    make_recipe(f'{remote}/text/*.txt'), f'{remote}/data', ONE
  )
  shards = [x['files'] for x in made['shards']]
  assert shards == [x['files'] for x in prepared[1]['shards']]
