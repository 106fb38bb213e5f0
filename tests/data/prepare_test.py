"""Tests of the way from text to records."""

import os
import pathlib

import pytest

from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import prepare
from bert_jax.data.prepare import __main__ as command
from bert_jax.tokenization import tokenizer
from tests import commands
from tests.data.preparation import (
  BEAM,
  ONE,
  digest,
  make_recipe,
  write_corpus,
  write_vocab,
)


def test_two_workers_write_the_same_bytes(corpus, prepared, tmp_path):
  # 120 documents are merged into 2 shards; one of 4 more for heldout.
  output = str(tmp_path / 'two')
  prepare.prepare(make_recipe(corpus), output, prepare.local_runner(2))
  assert digest(output) == digest(prepared[0])
  assert len(digest(output)) == 9  # (2 shards + held-out) x 2 lengths + 3


@pytest.mark.slow  # CI has Beam only with the oldest Python
def test_beam_writes_the_same_bytes(corpus, prepared, tmp_path):
  pytest.importorskip('apache_beam')
  output = str(tmp_path / 'beam')
  prepare.prepare(make_recipe(corpus), output, BEAM)
  assert digest(output) == digest(prepared[0])


@pytest.mark.slow  # CI has Beam only with the oldest Python
def test_what_beam_refuses_is_an_error():
  pytest.importorskip('apache_beam')
  with pytest.raises(errors.UserError, match='Unexpected pipeline runner: Foo'):
    list(prepare.run_on_beam(str, [('a',)], ['--runner=Foo']))


def test_finished_data_is_not_made_again(corpus, prepared):
  before = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  prepare.prepare(make_recipe(corpus), prepared[0], ONE)
  after = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  assert before == after


def test_another_recipe_in_the_same_place_is_an_error(corpus, prepared):
  with pytest.raises(errors.UserError, match='seed was 0, is 1'):
    prepare.prepare(make_recipe(corpus, seed=1), prepared[0])


def test_a_folder_of_other_files_is_left_alone(corpus, tmp_path):
  (tmp_path / 'raw.txt').write_text('Mine.')
  with pytest.raises(errors.UserError) as caught:
    prepare.prepare(make_recipe(corpus), str(tmp_path))
  assert str(caught.value).endswith('prepared data; name another folder.')
  assert os.listdir(tmp_path) == ['raw.txt']


def test_input_that_changed_after_preparation_is_an_error(tmp_path):
  path = write_corpus(tmp_path / 'corpus.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, lengths=(32,))
  prepare.prepare(recipe, output, ONE)
  size = os.path.getsize(path)
  with open(path, 'a') as file:
    file.write('x')
  with pytest.raises(
    errors.UserError, match=f'had {size:,} bytes, has {size + 1:,}'
  ):
    prepare.prepare(recipe, output, ONE)
  os.remove(path)  # what is prepared does not need its text any more
  prepare.prepare(recipe, output, ONE)
  os.symlink('nowhere', path)
  prepare.prepare(recipe, output, ONE)


def test_a_vocabulary_that_changed_after_preparation_is_an_error(
  corpus, tmp_path
):
  path = tmp_path / 'vocab.txt'
  recipe = make_recipe(corpus, vocab=str(path), vocab_size=7, lengths=(32,))
  output = str(tmp_path / 'data')
  write_vocab(path, 'the', 'bird')
  made = prepare.prepare(recipe, output, ONE)
  write_vocab(path, 'the', 'fish')
  with pytest.raises(errors.UserError, match='vocab.txt has changed since'):
    prepare.prepare(recipe, output, ONE)
  path.write_bytes('\r\n'.join([*tokenizer.SPECIAL, 'the', 'bird']).encode())
  assert prepare.prepare(recipe, output, ONE) == made
  path.unlink()  # like the text, it is not needed any more
  assert prepare.prepare(recipe, output, ONE) == made


def test_text_that_is_not_utf8_is_warned_of_also_when_it_is_prepared(
  tmp_path, monkeypatch, capsys
):
  text = pathlib.Path(write_corpus(tmp_path / 'good.txt')).read_text()
  bad = tmp_path / 'bad.txt'
  bad.write_bytes(text[:5000].replace('o', 'ó').encode('latin-1'))
  write_vocab(tmp_path / 'vocab.txt', 'the')
  # In several ranges, each of them a job.
  monkeypatch.setattr(sources, '_SMALLEST', 2000)
  count = text[:5000].count('o')
  given = [
    f'--input={tmp_path}/*d.txt',
    '--layout=sentences',
    f'--vocab={tmp_path}/vocab.txt',
    f'--output={tmp_path}/data',
    '--heldout=0.1',
    '--workers=0',
  ]
  for _ in range(2):
    commands.run(command, *given)
    assert (
      f'\nWARNING: {count} sequences of bytes in {bad}, are not UTF-8'
    ) in capsys.readouterr().out


def test_a_vocabulary_for_other_text_is_warned_of(tmp_path, capsys):
  text = '\n\n'.join(f'ab ab ab {k}.\nab ab ab ab.' for k in range(10, 70))
  (tmp_path / 'a.txt').write_text(text)

  def run(name, *words):
    write_vocab(tmp_path / name, *words)
    commands.run(
      command,
      f'--input={tmp_path}/a.txt',
      '--layout=sentences',
      f'--vocab={tmp_path}/{name}',
      f'--output={tmp_path}/{name}.data',
      '--heldout=0.1',
      '--min_chars=0',
      '--workers=0',
    )
    return capsys.readouterr().out

  digits = [x for k in range(10) for x in (str(k), f'##{k}')]
  fits = run('fits.txt', 'ab', '.', *digits)
  assert '(0.00% unknown)' in fits and 'WARNING' not in fits
  other = run('other.txt', '.', *digits)
  assert '\nWARNING: 63.6%' in other  # 7 of each 11 tokens
  assert '% of the tokens are unknown to the vocabulary' in other


def test_a_directory_that_cannot_be_written_is_an_error(corpus):
  with pytest.raises(errors.UserError, match='cannot write /proc/data'):
    prepare.prepare(make_recipe(corpus), '/proc/data')


@pytest.mark.parametrize(
  'words, cased, warned',
  [
    (['[UNK]', 'a', '##b'], True, 'without --cased'),
    (['[UNK]', 'a', '##b'], False, ''),
    (['[UNK]', 'A', '##b'], True, ''),
    (['[UNK]', 'A', '##b'], False, '33% of its pieces: give --cased'),
    (['[UNK]', *'abcdefghijklmnopqrstuvwxyz', 'A'], False, ''),  # 1 of 28
  ],
)
def test_a_vocabulary_of_the_other_case_is_noticed(
  words, cased, warned, capsys
):
  command._warn_of_case(words, 'vocab.txt', cased)
  said = capsys.readouterr().err
  assert warned in said and bool(warned) == bool(said)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ('--verify=x --seed=1', '--verify only checks .* so --seed does nothing'),
    ('--runner=beam --workers=2', '--workers counts local processes; with --r'),
  ],
)
def test_flags_that_do_nothing_are_refused(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    commands.run(command, *arguments.split())


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ('--workers=-2', '--workers=-2 must be at least -1'),
    ('--passes=0', '--passes=0 must be at least 1 and at most 1000; see --he'),
    ('--max_seq_length=x', '--max_seq_length=x must be numbers, for example'),
    ('--language=korean', "--language='korean' is not a code of ISO 639"),
  ],
)
def test_a_flag_takes_what_its_field_may_have(flag, message, tmp_path):
  write_vocab(tmp_path / 'vocab.txt', 'the')
  given = ('--input=a.txt', f'--vocab={tmp_path}/vocab.txt', '--output=x')
  with pytest.raises(errors.UserError, match=message):
    commands.run(command, *given, flag)
