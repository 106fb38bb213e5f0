"""Tests of the way from text to records."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import random
import shutil

import fsspec
import numpy as np
import pytest

from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.data import beam, dataset, prepare, recipe, stages
from bert_jax.data import manifest as manifest_lib
from bert_jax.runtime import files, storage
from bert_jax.tokenization import tokenizer
from tests import commands

_ONE = prepare.local_runner(0)  # in this process

_WORDS = (
  'the a bird fish stone river cold warm runs sees under over quickly old new '
  'house tree cloud rain wind sun night day morning evening child woman man'
).split()


def write_corpus(path, documents=120, seed=0):
  rng = random.Random(seed)
  blocks = []
  for _ in range(documents):
    lines = [
      ' '.join(rng.choices(_WORDS, k=rng.randint(4, 12))) + '.'
      for _ in range(rng.randint(4, 12))
    ]
    blocks.append('\n'.join(lines))
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  return str(path)


def make_recipe(path, **changes):
  fields = {
    'inputs': (path,),
    'weights': (),
    'layout': 'sentences',
    'language': 'en',
    'field': 'text',
    'min_chars': 0,
    'max_documents': 0,
    'vocab': '',
    'vocab_size': 120,
    'lowercase': True,
    'strip_accents': None,
    'lengths': (32, 64),
    'passes': 2,
    'short_seq_prob': 0.1,
    'pack': 1,
    'heldout': 0.1,
    'shards': 4,
    'seed': 0,
  }
  return recipe.Recipe(**{**fields, **changes})


def compute_sha256(path):
  return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def digest(directory):
  """Returns {file name: SHA-256} of a directory."""
  return {
    name: compute_sha256(os.path.join(directory, name))
    for name in sorted(os.listdir(directory))
  }


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  return write_corpus(tmp_path_factory.mktemp('text') / 'corpus.txt')


@pytest.fixture(scope='module')
def prepared(corpus, tmp_path_factory):
  output = str(tmp_path_factory.mktemp('data') / 'one')
  return output, prepare.prepare(make_recipe(corpus), output, _ONE)


def test_two_workers_write_the_same_bytes(corpus, prepared, tmp_path):
  # 120 documents are merged into 2 shards; one of 4 more for heldout.
  output = str(tmp_path / 'two')
  prepare.prepare(make_recipe(corpus), output, prepare.local_runner(2))
  assert digest(output) == digest(prepared[0])
  assert len(digest(output)) == 9  # (2 shards + held-out) x 2 lengths + 3


def test_beam_writes_the_same_bytes(corpus, prepared, tmp_path):
  pytest.importorskip('apache_beam')
  output = str(tmp_path / 'beam')
  runner = functools.partial(beam.run, options=['--runner=DirectRunner'])
  prepare.prepare(make_recipe(corpus), output, runner)
  assert digest(output) == digest(prepared[0])


def digest_remote(url):
  return {
    name: hashlib.sha256(storage.read(f'{url}/{name}')).hexdigest()
    for name in storage.list_names(url)
  }


@pytest.mark.slow
@pytest.mark.parametrize('driver', ['two workers', 'beam'])
def test_a_bucket_gets_the_same_bytes(corpus, prepared, remote, driver):
  runner = prepare.local_runner(2)
  if driver == 'beam':
    pytest.importorskip('apache_beam')
    runner = functools.partial(beam.run, options=['--runner=DirectRunner'])
  made = prepare.prepare(make_recipe(corpus), f'{remote}/data', runner)
  assert made == prepared[1]
  assert digest_remote(f'{remote}/data') == digest(prepared[0])
  assert storage.list_names(remote) == ['data', 'data.lock']


def test_a_preparation_in_a_bucket_continues(corpus, prepared, remote):
  done = []

  def stop_after(n):
    def run(fn, jobs):
      for job in jobs:
        if len(done) == n:
          raise _Stopped
        done.append(job[0].name)
        yield fn(*job)

    return run

  for n in (1, 5):
    done.clear()
    with pytest.raises(_Stopped):
      prepare.prepare(make_recipe(corpus), f'{remote}/data', stop_after(n))
    assert not storage.exists(f'{remote}/data')
  before = storage.list_names(f'{remote}/data.partial/work')
  assert sum(name.endswith('.json') for name in before) >= 3
  prepare.prepare(make_recipe(corpus), f'{remote}/data', _ONE)
  assert digest_remote(f'{remote}/data') == digest(prepared[0])


@pytest.mark.slow
def test_a_move_that_was_cut_off_in_a_bucket_is_finished(
  corpus, prepared, remote, monkeypatch
):
  with monkeypatch.context() as m:
    m.setattr(storage, 'delete', lambda path: 1 // 0)
    with pytest.raises(ZeroDivisionError):
      prepare.prepare(make_recipe(corpus), f'{remote}/data', _ONE)
  assert prepare.prepare(make_recipe(corpus), f'{remote}/data', None)
  assert digest_remote(f'{remote}/data') == digest(prepared[0])


def test_other_files_in_a_bucket_are_left_alone(corpus, remote):
  files.write_text(f'{remote}/data/mine', '')
  with pytest.raises(errors.UserError, match='is not prepared data'):
    prepare.prepare(make_recipe(corpus), f'{remote}/data', _ONE)
  assert storage.list_names(f'{remote}/data') == ['mine']


def test_the_text_may_lie_in_a_bucket(corpus, prepared, remote):
  files.write_text(f'{remote}/text/a.txt', pathlib.Path(corpus).read_text())
  made = prepare.prepare(
    make_recipe(f'{remote}/text/*.txt'), f'{remote}/data', _ONE
  )
  shards = [x['files'] for x in made['shards']]
  assert shards == [x['files'] for x in prepared[1]['shards']]


def test_the_cut_of_the_input_changes_no_record(
  corpus, prepared, tmp_path, monkeypatch
):
  monkeypatch.setattr(sources, '_SMALLEST', 1000)
  output = str(tmp_path / 'cut')
  recipe = make_recipe(corpus)
  assert len(sources.plan(recipe.inputs, recipe.layout, recipe.field)) > 20
  prepare.prepare(recipe, output, _ONE)
  assert digest(output) == digest(prepared[0])


class _Stopped(Exception):
  pass


def test_an_interrupted_preparation_continues_and_repeats_nothing(
  corpus, prepared, tmp_path
):
  output = str(tmp_path / 'stopped')
  done = []

  def stop_after(n):
    def run(fn, jobs):
      for job in jobs:
        if len(done) == n:
          raise _Stopped
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
    except _Stopped:
      assert not os.path.exists(output) and len(done) == n
  assert len(done) == 6
  assert digest(output) == digest(prepared[0])


def test_input_that_changes_during_an_interruption_is_read_anew(
  tmp_path, prepared
):
  path = write_corpus(tmp_path / 'corpus.txt', seed=1)
  output = str(tmp_path / 'data')

  def stop(fn, jobs):
    list(map(lambda job: fn(*job), jobs))
    raise _Stopped

  with pytest.raises(_Stopped):
    prepare.prepare(make_recipe(path), output, stop)
  write_corpus(tmp_path / 'corpus.txt', seed=0)
  prepare.prepare(make_recipe(path), output, _ONE)
  made, reference = digest(output), digest(prepared[0])
  for name in ('manifest.json', 'DATA_CARD.md'):  # they hold the path
    made.pop(name), reference.pop(name)
  assert made == reference


def test_input_that_changed_after_preparation_is_an_error(tmp_path):
  path = write_corpus(tmp_path / 'corpus.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, lengths=(32,))
  prepare.prepare(recipe, output, _ONE)
  size = os.path.getsize(path)
  with open(path, 'a') as file:
    file.write('x')
  with pytest.raises(errors.UserError, match=f'was {size}, is {size + 1}'):
    prepare.prepare(recipe, output, _ONE)
  os.remove(path)  # what is prepared does not need its text any more
  prepare.prepare(recipe, output, _ONE)
  os.symlink('nowhere', path)
  prepare.prepare(recipe, output, _ONE)


def test_a_bucket_text_that_changes_during_an_interruption_is_read_anew(
  corpus, tmp_path
):
  store = fsspec.filesystem('memory')
  text = pathlib.Path(corpus).read_bytes()
  recipe = make_recipe('memory://changing/a.txt', lengths=(32,))

  def stop(fn, jobs):
    list(map(lambda job: fn(*job), jobs))
    raise _Stopped

  store.pipe('/changing/a.txt', text.replace(b'bird', b'wolf'))
  with pytest.raises(_Stopped):
    prepare.prepare(recipe, str(tmp_path / 'data'), stop)
  store.pipe('/changing/a.txt', text)
  made = prepare.prepare(recipe, str(tmp_path / 'data'), _ONE)
  [file] = made['inputs'][0]['files']
  assert file['sha256'] == hashlib.sha256(text).hexdigest()


def _write_vocab(path, *words):
  path.write_text('\n'.join([*tokenizer.SPECIAL, *words]) + '\n')


def test_a_vocabulary_that_changed_after_preparation_is_an_error(
  corpus, tmp_path
):
  path = tmp_path / 'vocab.txt'
  recipe = make_recipe(corpus, vocab=str(path), vocab_size=7, lengths=(32,))
  output = str(tmp_path / 'data')
  _write_vocab(path, 'the', 'bird')
  made = prepare.prepare(recipe, output, _ONE)
  _write_vocab(path, 'the', 'fish')
  with pytest.raises(errors.UserError, match='vocab.txt has changed since'):
    prepare.prepare(recipe, output, _ONE)
  path.write_bytes('\r\n'.join([*tokenizer.SPECIAL, 'the', 'bird']).encode())
  assert prepare.prepare(recipe, output, _ONE) == made
  path.unlink()  # like the text, it is not needed any more
  assert prepare.prepare(recipe, output, _ONE) == made


def test_a_vocabulary_that_changes_during_an_interruption_is_used(
  corpus, tmp_path
):
  path = tmp_path / 'vocab.txt'
  recipe = make_recipe(corpus, vocab=str(path), vocab_size=7, lengths=(32,))
  output = str(tmp_path / 'data')

  def stop_in_the_second_stage(fn, jobs):
    if hasattr(jobs[0][0], 'split'):
      raise _Stopped
    return (fn(*job) for job in jobs)

  _write_vocab(path, 'the', 'bird')
  with pytest.raises(_Stopped):
    prepare.prepare(recipe, output, stop_in_the_second_stage)
  _write_vocab(path, 'the', 'fish')
  prepare.prepare(recipe, output, _ONE)
  assert tokenizer.read_vocab(f'{output}/vocab.txt')[5:] == ('the', 'fish')


def test_copies_are_dropped_and_counted(corpus, prepared, tmp_path):
  copy = str(tmp_path / 'copy.txt')
  shutil.copy(corpus, copy)
  manifest = prepare.prepare(
    make_recipe(corpus, inputs=(corpus, copy)), str(tmp_path / 'data'), _ONE
  )
  assert manifest['cleaned'] == {'duplicate_documents': 120}
  assert manifest['documents']['train'] == prepared[1]['documents']['train']
  assert [i['documents'] for i in manifest['inputs']] == [120, 120]


def test_short_documents_are_dropped_and_counted(tmp_path):
  path = write_corpus(tmp_path / 'corpus.txt')
  with open(path, 'a') as file:
    file.write('\n\nShort.\n\nBrief too.\n')
  manifest = prepare.prepare(
    make_recipe(path, min_chars=20), str(tmp_path / 'data'), _ONE
  )
  assert manifest['cleaned'] == {'short_documents': 2}


def test_weights_multiply_passes(corpus, tmp_path):
  def records(name, **changes):
    output = str(tmp_path / name)
    recipe = make_recipe(corpus, lengths=(64,), **changes)
    prepare.prepare(recipe, output, _ONE)
    return {n: h for n, h in digest(output).items() if 'record' in n}

  weighted = records('a', passes=2, weights=(1.5,))
  assert weighted == records('b', passes=3) != records('c', passes=2)
  with pytest.raises(errors.UserError, match='are 2, but there are 1 inputs'):
    records('d', weights=(1.0, 2.0))


def test_a_shard_without_passes_is_empty_and_does_no_harm(tmp_path):
  corpus = write_corpus(tmp_path / 'corpus.txt', seed=11)

  def make(weight, **changes):
    recipe = make_recipe(corpus, lengths=(32,), weights=(weight,), **changes)
    return prepare.prepare(recipe, str(tmp_path / f'{weight}'), _ONE)

  # By their hashes, 6 documents have a pass, all of them in the second shard.
  made = make(0.035)
  train = [s['files']['32'] for s in made['shards'] if s['split'] == 'train']
  assert not train[0]['records'] and train[1]['records']
  split = dataset.open_split(str(tmp_path / '0.035'), 'train', 32)
  assert len(split.reader) == made['lengths']['32']['rows']
  with pytest.raises(errors.UserError, match='leave no pair to train on; give'):
    make(0.001, passes=1)


def test_the_manifest_names_every_file_with_its_hash(corpus, prepared):
  output, manifest = prepared
  [given] = manifest['inputs']
  assert given['files'] == [
    {
      'path': corpus,
      'bytes': os.path.getsize(corpus),
      'sha256': compute_sha256(corpus),
    }
  ]
  found = digest(output)
  for shard in manifest['shards']:
    for file in shard['files'].values():
      assert found[file['name']] == file['sha256']
  assert found['vocab.txt'] == manifest['vocab_sha256']


def test_the_card_is_for_people(prepared):
  with open(os.path.join(prepared[0], 'DATA_CARD.md')) as file:
    card = file.read()
  assert 'Nothing had to be removed.' in card
  assert '> [CLS] ' in card and '| seed | `0` |' in card


def test_packed_rows_hold_all_pairs(corpus, prepared, tmp_path):
  manifest = prepare.prepare(
    make_recipe(corpus, pack=3), str(tmp_path / 'packed'), _ONE
  )
  for length in ('32', '64'):
    packed, plain = manifest['lengths'][length], prepared[1]['lengths'][length]
    assert packed['pairs'] == plain['pairs'] > packed['rows']
    assert packed['padding_share'] < plain['padding_share']
    assert packed['padding_share_unpacked'] == plain['padding_share']


def test_a_kill_just_before_the_end_loses_nothing(corpus, prepared, tmp_path):
  output = str(tmp_path / 'data')
  shutil.copytree(prepared[0], output + '.partial')
  os.makedirs(output + '.partial/work')  # half removed
  assert prepare.prepare(make_recipe(corpus), output) == prepared[1]
  assert digest(output) == digest(prepared[0])


def test_a_directory_that_cannot_be_written_is_an_error(corpus):
  with pytest.raises(errors.UserError, match='cannot write /proc/data'):
    prepare.prepare(make_recipe(corpus), '/proc/data')


def test_manifest_counts(prepared):
  output, manifest = prepared
  found = manifest['documents']
  assert found['train'] + found['heldout'] == 120
  assert 4 <= found['heldout'] <= 24  # 12 +- 4 sigma
  for length in (32, 64):
    train = dataset.open_split(output, 'train', length)
    assert len(train.reader) == manifest['lengths'][str(length)]['pairs']
  assert 0 < manifest['unigram_entropy'] < 4.79  # ln 120
  assert manifest == manifest_lib.read(output)


def test_heldout_documents_are_not_in_the_training_data(corpus, prepared):
  words = tokenizer.Tokenizer.load(os.path.join(prepared[0], 'vocab.txt'))

  def sentences(split):
    reader = dataset.open_split(prepared[0], split, 64).reader
    rows = reader.rows(np.arange(len(reader)), 64, words.cls_id, words.sep_id)
    text = ' '.join(words.decode(r.tolist()) for r in rows['input_ids'])
    return {s.strip() for s in text.split('.') if len(s.split()) > 6}

  assert sentences('heldout')
  # Truncation at the front can make unlike sentences alike, hence the length.
  common = sentences('heldout') & sentences('train')
  assert len(common) < 3


def test_finished_data_is_not_made_again(corpus, prepared):
  before = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  prepare.prepare(make_recipe(corpus), prepared[0], _ONE)
  after = os.stat(os.path.join(prepared[0], 'manifest.json')).st_mtime_ns
  assert before == after


def test_another_recipe_in_the_same_place_is_an_error(corpus, prepared):
  with pytest.raises(errors.UserError, match='seed was 0, is 1'):
    prepare.prepare(make_recipe(corpus, seed=1), prepared[0])


def test_a_truncated_file_is_named(corpus, tmp_path):
  output = str(tmp_path / 'data')
  prepare.prepare(make_recipe(corpus, lengths=(32,)), output, _ONE)
  name = next(n for n in os.listdir(output) if n.startswith('train'))
  with open(os.path.join(output, name), 'r+b') as file:
    file.truncate(1000)
  with pytest.raises(errors.UserError, match=f'{name} has 1000 bytes'):
    dataset.open_split(output, 'train', 32)


def test_a_length_that_was_not_prepared_is_an_error(prepared):
  with pytest.raises(errors.UserError, match='not prepared for length 128'):
    dataset.open_split(prepared[0], 'train', 128)


@pytest.mark.parametrize(
  'text, message',
  [
    ('', 'holds no text'),
    ('\n\n  \n', 'holds no text'),
    ('one document.\nof two lines.\n', r'holds 1 document\(s\)'),
  ],
)
def test_too_little_text_is_an_error(tmp_path, text, message):
  path = tmp_path / 'corpus.txt'
  path.write_text(text)
  with pytest.raises(errors.UserError, match=message):
    prepare.prepare(make_recipe(str(path)), str(tmp_path / 'data'))
  assert not (tmp_path / 'data').exists()


def test_a_vocabulary_of_another_size_is_an_error(corpus, prepared, tmp_path):
  vocab = os.path.join(prepared[0], 'vocab.txt')
  with pytest.raises(errors.UserError, match='has 120 entries'):
    prepare.prepare(
      make_recipe(corpus, vocab=vocab, vocab_size=121), str(tmp_path / 'data')
    )


def test_the_number_of_shards_follows_the_size_of_the_text():
  def shards(size, name='a.txt', asked=0):
    recipe = make_recipe('a.txt', shards=asked)
    piece = sources.Piece(0, 0, (sources.Range(name, 0, size, size),))
    return stages._with_shards(recipe, [piece] * 4).shards

  assert shards(1) == shards(4 << 30) == 256  # 256 x 64 MB are 4 x 4 GB
  assert shards((4 << 30) + 1) == 512
  assert shards(4 << 30, 'a.txt.bz2') == 2048  # five times as much, rounded up
  assert shards(4 << 30, asked=16) == 16


def test_what_beam_refuses_is_an_error():
  pytest.importorskip('apache_beam')
  with pytest.raises(errors.UserError, match='Unexpected pipeline runner: Foo'):
    list(beam.run(str, [('a',)], ['--runner=Foo']))


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
  prepare._warn_of_case(words, 'vocab.txt', cased)
  said = capsys.readouterr().err
  assert warned in said and bool(warned) == bool(said)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ('--verify=x --seed=1', '--verify only checks .* so --seed does nothing'),
    ('--workers=-2', '--workers=-2 is no number of processes'),
    ('--runner=beam --workers=2', '--workers counts local processes; with --r'),
  ],
)
def test_flags_that_do_nothing_are_refused(arguments, message):
  with pytest.raises(errors.UserError, match=message):
    commands.run(prepare, *arguments.split())


def _write_korean(path):
  rng = random.Random(3)
  words = '한국어 문장을 나누고 합치는 방법 있다 없다 그리고 나라 말이'.split()
  blocks = [
    '\n'.join(' '.join(rng.choices(words, k=6)) + '.' for _ in range(5))
    for _ in range(60)
  ]
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  return str(path)


def test_korean_stays_in_syllables_and_the_data_says_so(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, vocab_size=60)
  made = prepare.prepare(recipe, output, _ONE)
  assert made['recipe']['strip_accents'] is False
  assert made['accents'].startswith('kept: 7')
  words = manifest_lib.load_tokenizer(output)
  assert words.tokens(words.ids(['한국어 나라'])[0]) == ['한국어', '나라']
  with open(os.path.join(output, 'DATA_CARD.md'), encoding='utf-8') as file:
    card = file.read()
  assert '나라' in card and 'accents are kept: 7' in card
  # Decided once: the same request finds it, another one does not get it.
  assert prepare.prepare(recipe, output, _ONE) == made
  kept = dataclasses.replace(recipe, strip_accents=False)
  assert prepare.prepare(kept, output, _ONE) == made
  with pytest.raises(errors.UserError, match='strip_accents was False'):
    prepare.prepare(
      dataclasses.replace(recipe, strip_accents=True), output, _ONE
    )


def test_google_splits_korean_into_jamo(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, vocab_size=60, strip_accents=True)
  made = prepare.prepare(recipe, output, _ONE)
  assert made['accents'] == 'stripped: as was asked'
  pieces = manifest_lib.load_tokenizer(output).vocab
  assert '\u1112' in pieces and '한' not in pieces


def test_a_vocabulary_that_is_given_decides_over_the_text(tmp_path):
  path = _write_korean(tmp_path / 'ko.txt')
  vocab = tmp_path / 'vocab.txt'
  pieces = [*tokenizer.SPECIAL, *'\u1112\u1161.']
  vocab.write_text('\n'.join(pieces) + '\n', encoding='utf-8')
  recipe = make_recipe(path, vocab=str(vocab), vocab_size=8)
  output = str(tmp_path / 'data')
  made = prepare.prepare(recipe, output, _ONE)
  assert made['recipe']['strip_accents'] is True
  assert made['accents'] == (
    'stripped: 0.0% of the pieces of the vocabulary have any'
  )


def test_data_without_the_field_reads_as_before(corpus, prepared, tmp_path):
  output = str(tmp_path / 'old')
  shutil.copytree(prepared[0], output)
  path = os.path.join(output, 'manifest.json')
  with open(path, encoding='utf-8') as file:
    old = json.load(file)
  del old['accents'], old['recipe']['strip_accents'], old['checksum']
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(old, file)
  assert manifest_lib.load_tokenizer(output).strip_accents
  assert manifest_lib.describe_accents(old) == 'stripped'
  for strip_accents in (None, True):
    recipe = make_recipe(corpus, strip_accents=strip_accents)
    assert prepare.prepare(recipe, output, _ONE) == old
  with pytest.raises(errors.UserError, match='strip_accents was True'):
    recipe = make_recipe(corpus, strip_accents=False)
    prepare.prepare(recipe, output, _ONE)
