"""Tests of the way from text to tokens and pairs."""

import dataclasses
import hashlib
import json
import os
import pathlib
import random
import shutil

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.data import (
  dataset,
  document_spill,
  manifest_file,
  prepare,
  shards,
  store,
  vocab,
)
from bert_jax.runtime import files, storage
from tests import bpe, commands
from tests.data import made
from tests.data.preparation import (
  BEAM,
  LETTERS,
  ONE,
  Stopped,
  digest,
  make_recipe,
  stop_after,
  write_corpus,
  write_vocab,
)


@pytest.mark.parametrize('place', ['tmp_path', 'remote'])
def test_a_folder_of_other_files_is_left_alone(corpus, place, request):
  output = f'{request.getfixturevalue(place)}/data'
  storage.make_folder(output)
  files.write_text(f'{output}/mine', '')
  with pytest.raises(errors.UserError, match=' data; name another folder.$'):
    prepare.prepare(make_recipe(corpus), output, ONE)
  assert storage.list_names(output) == ['mine']


def test_input_that_changed_after_preparation_is_an_error(tmp_path):
  path = write_corpus(tmp_path / 'corpus.txt')
  output = str(tmp_path / 'data')
  recipe = make_recipe(path, lengths=(32,))
  prepare.prepare(recipe, output, ONE)
  size = os.path.getsize(path)
  with open(path, 'a') as file:
    file.write('x')
  with pytest.raises(
    errors.UserError, match=f'corpus.txt was {size}, is {size + 1}'
  ):
    prepare.prepare(recipe, output, ONE)
  os.remove(path)  # what is prepared does not need its text any more
  prepare.prepare(recipe, output, None)


def test_a_vocabulary_that_changed_after_preparation_is_an_error(
  corpus, tmp_path
):
  path = tmp_path / 'vocab.txt'
  recipe = make_recipe(corpus, vocab=str(path), vocab_size=59, lengths=(32,))
  output = str(tmp_path / 'data')
  write_vocab(path, *LETTERS, 'bird')
  made = prepare.prepare(recipe, output, ONE)
  write_vocab(path, *LETTERS, 'fish')
  with pytest.raises(errors.UserError, match='vocab.txt, other words'):
    prepare.prepare(recipe, output, ONE)
  write_vocab(path, *LETTERS, 'bird')
  moved = dataclasses.replace(recipe, vocab=str(path.rename(tmp_path / 'v')))
  assert prepare.prepare(moved, output, ONE) == made  # words count, not paths
  os.unlink(moved.vocab)  # like the text, it is not needed any more
  assert prepare.prepare(recipe, output, ONE) == made


def test_the_command_keeps_case_and_warns_of_another_vocabulary(
  tmp_path, capsys
):
  text = '\n\n'.join('Paris ' * 9 + f'{k}.' for k in range(10, 70))
  (tmp_path / 'a.txt').write_text(text)
  given = [f'--input={tmp_path}/a.txt', '--layout=sentences', '--workers=0']
  path, output = f'{tmp_path}/vocab.txt', f'{tmp_path}/data'
  commands.run(vocab, *given, '--cased', f'--output={path}', '--size=42')
  commands.run(
    prepare, *given, '--cased', f'--vocab={path}', f'--output={output}'
  )
  words = manifest_file.load_tokenizer(output)
  assert words.tokens(words.ids(['Paris'])[0]) == ['Paris']
  assert manifest_file.read(output)['unknown_share'] == 0
  assert 'WARNING' not in capsys.readouterr().out
  # Of the 11 words of each document, one is a number of two digits.
  write_vocab(tmp_path / 'few.txt', 'Paris', '.')
  few = f'--vocab={tmp_path}/few.txt', f'--output={output}2', '--cased'
  commands.run(prepare, *given, *few)
  assert '\nWARNING: 9.1% of the tokens, with 4.' in capsys.readouterr().out


def test_workers_are_refused_with_beam():
  with pytest.raises(errors.UserError, match='--workers counts local proc'):
    commands.run(prepare, '--runner=beam', '--workers=2')


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


@pytest.mark.parametrize('place', ['tmp_path', 'remote'])
def test_an_interrupted_preparation_continues_and_repeats_nothing(
  corpus, prepared, place, request
):
  output = f'{request.getfixturevalue(place)}/data'
  work, done = f'{output}.partial/work', []

  def stop_after(n):
    def run(fn, jobs):
      for job in jobs:
        if len(done) == n:
          raise Stopped
        before = storage.list_names(work)
        result = fn(*job)
        if storage.list_names(work) != before:
          done.append(job[0].name)
        yield result

    return run

  # One read, two counts of words, then three shards.
  for n in range(7):
    try:
      prepare.prepare(make_recipe(corpus), output, stop_after(n))
    except Stopped:
      assert not storage.exists(output) and len(done) == n
  assert len(done) == 6
  assert digest(output) == digest(prepared[0])


def test_a_kill_just_before_the_end_loses_nothing(corpus, prepared, tmp_path):
  output = str(tmp_path / 'data')
  shutil.copytree(prepared[0], output + '.partial')
  os.makedirs(output + '.partial/work')  # half removed
  # No runner is needed, since nothing is made again.
  assert prepare.prepare(make_recipe(corpus), output, None) == prepared[1]
  assert digest(output) == digest(prepared[0])


@pytest.mark.parametrize(
  'damaged',
  [['heldout-*.json'], ['heldout*32.pairs', '*0-of*.counts', '*1-of*.tokens']],
)
def test_what_a_power_cut_left_empty_is_made_again(
  corpus, prepared, tmp_path, damaged
):
  output = str(tmp_path / 'data')
  with pytest.raises(Stopped):
    prepare.prepare(make_recipe(corpus), output, stop_after(shards.make))
  for name in damaged:  # of a shard each
    path = sorted(pathlib.Path(output + '.partial').rglob(name))[-1]
    path.write_bytes(b'')
  prepare.prepare(make_recipe(corpus), output, ONE)
  assert digest(output) == digest(prepared[0])


def test_input_that_changes_during_an_interruption_is_read_anew(
  tmp_path, prepared
):
  path = write_corpus(tmp_path / 'corpus.txt', seed=1)
  output = str(tmp_path / 'data')
  with pytest.raises(Stopped):
    prepare.prepare(make_recipe(path), output, stop_after(document_spill.read))
  write_corpus(tmp_path / 'corpus.txt', seed=0)
  prepare.prepare(make_recipe(path), output, ONE)
  made, reference = digest(output), digest(prepared[0])
  for name in ('manifest.json', 'DATA_CARD.md'):  # they hold the path
    made.pop(name), reference.pop(name)
  assert made == reference


def test_korean_stays_in_syllables_and_the_data_says_so(tmp_path):
  rng = random.Random(3)
  words = '한국어 문장을 나누고 합치는 방법 있다 없다 그리고 나라 말이'.split()
  blocks = [
    '\n'.join(' '.join(rng.choices(words, k=6)) + '.' for _ in range(5))
    for _ in range(60)
  ]
  path, output = tmp_path / 'ko.txt', str(tmp_path / 'data')
  path.write_text('\n\n'.join(blocks), encoding='utf-8')
  recipe = make_recipe(str(path), vocab_size=60)
  made = prepare.prepare(recipe, output, ONE)
  assert made['recipe']['strip_accents'] is False
  words = manifest_file.load_tokenizer(output)
  assert words.tokens(words.ids(['한국어 나라'])[0]) == ['한국어', '나라']
  card = pathlib.Path(os.path.join(output, 'DATA_CARD.md')).read_text('utf-8')
  assert '| accents | kept: 7' in card
  # Decided once: the same request finds it, another one does not get it.
  for same in (recipe, dataclasses.replace(recipe, strip_accents=False)):
    assert prepare.prepare(same, output, None) == made
  other = dataclasses.replace(recipe, strip_accents=True)
  with pytest.raises(errors.UserError, match='strip_accents was False'):
    prepare.prepare(other, output, None)


def test_the_manifest_names_every_file_with_its_hash(corpus, prepared):
  output, manifest = prepared
  [given] = manifest['inputs']
  assert given['files'] == [
    {
      'path': corpus,
      'bytes': os.path.getsize(corpus),
      'sha256': hashlib.sha256(pathlib.Path(corpus).read_bytes()).hexdigest(),
    }
  ]
  found = digest(output)
  for shard in manifest['shards']:
    for file in store.list_files(shard):
      assert found[file['name']] == file['sha256']
  assert found['vocab.txt'] == manifest['vocab_sha256']


def test_tokens_are_written_once_and_all_pairs_are_slices_of_them(prepared):
  output, manifest = prepared
  names = storage.list_names(output)
  sizes = {x: storage.get_size(f'{output}/{x}') for x in names}
  for shard in manifest['shards']:
    assert sizes[shard['tokens_file']['name']] == 2 * shard['tokens']
    for file in shard['files'].values():
      assert sizes[file['name']] == file['bytes'] == 13 * file['pairs']
  words = manifest_file.load_tokenizer(output)
  reader = dataset.open_split(output, 'train', 32).reader
  rows = reader.rows(np.arange(len(reader)), words.cls_id, words.sep_id)
  pairs = made.read_pairs(output, 'train', 32)
  assert rows['next_sentence_labels'].tolist() == [x for x, *_ in pairs]
  for ids, (_, first, second) in zip(rows['input_ids'], pairs, strict=True):
    tokens = ['[CLS]', *first, '[SEP]', *second, '[SEP]']
    assert words.tokens(ids[: len(tokens)].tolist()) == tokens
    assert not ids[len(tokens) :].any()


def test_a_shard_whose_offsets_would_not_fit_is_refused(
  corpus, tmp_path, monkeypatch
):
  monkeypatch.setattr(store, 'MOST_TOKENS', 1000)
  with pytest.raises(errors.UserError, match='too large. Set data.shards'):
    prepare.prepare(make_recipe(corpus), str(tmp_path / 'data'), ONE)


def test_packed_rows_hold_all_pairs(corpus, prepared, tmp_path):
  manifest = prepare.prepare(
    make_recipe(corpus, pack=3), str(tmp_path / 'packed'), ONE
  )
  for length in ('32', '64'):
    packed, plain = manifest['lengths'][length], prepared[1]['lengths'][length]
    assert packed['pairs'] == plain['pairs'] > packed['rows']
    assert packed['padding_share'] < plain['padding_share']
    assert packed['padding_share_unpacked'] == plain['padding_share']


# Rows of sentences.


def count_ids(arrays, size):
  return sum(np.bincount(x.ravel(), minlength=size) for x in arrays)


@pytest.mark.parametrize('length', [32, 64])
@pytest.mark.parametrize('rows', ['full_sentences', 'doc_sentences'])
def test_rows_of_sentences_have_every_token_once_a_pass(
  sentences, rows, length
):
  output, manifest = sentences[rows], manifest_file.read(sentences[rows])
  words, made = manifest_file.load_tokenizer(output), manifest['lengths']
  reader = dataset.open_split(output, 'train', length).reader
  batch = reader.rows(np.arange(len(reader)), words.cls_id, words.sep_id)
  stored = count_ids(
    (
      np.fromfile(os.path.join(output, x['tokens_file']['name']), '<u2')
      for x in manifest['shards']
      if x['split'] == 'train'
    ),
    words.size,
  )
  seen = count_ids([batch['input_ids']], words.size)
  parts = made[str(length)]['parts']
  assert seen[words.cls_id] == seen[words.sep_id] == parts
  seen[[0, words.cls_id, words.sep_id]] = 0
  assert seen.tolist() == (2 * stored).tolist()
  padding = 1 - batch['input_mask'].mean()
  assert padding == pytest.approx(made[str(length)]['padding_share'], abs=1e-5)
  assert made[str(length)]['unused_tokens'] == 0
  mixed = rows == 'full_sentences'
  assert padding < (0.2 if mixed else 0.5)
  assert ('sequence_ids' in batch) == mixed
  assert parts == (batch['sequence_ids'].max(1).sum() if mixed else len(reader))
  # Held-out text is in rows of its own input.
  assert dataset.open_split(output, 'heldout', length).inputs


def test_a_part_takes_10_bytes_at_most(sentences):
  for output in sentences.values():
    for shard in manifest_file.read(output)['shards']:
      for file in shard['files'].values():
        size = os.path.getsize(os.path.join(output, file['name']))
        assert size == file['bytes'] <= 10 * file['parts'] + 4
        assert file['name'].endswith('.parts')


@pytest.mark.parametrize(
  'driver',
  ['interrupted', 'workers', pytest.param('beam', marks=pytest.mark.slow)],
)
def test_rows_of_sentences_are_the_same_bytes_however_they_are_made(
  sentences, tmp_path, driver
):
  runner = {'beam': BEAM, 'workers': prepare.local_runner(3)}.get(driver, ONE)
  if driver == 'beam':
    pytest.importorskip('apache_beam')
  there, output = sentences['full_sentences'], str(tmp_path / 'data')
  [given] = manifest_file.read(there)['inputs']
  recipe = make_recipe(given['input'], rows='full_sentences')
  if driver == 'interrupted':
    with pytest.raises(Stopped):
      prepare.prepare(recipe, output, stop_after(shards.make))
    some = sorted(pathlib.Path(output + '.partial').glob('train*.parts'))
    some[-1].write_bytes(b'')
  prepare.prepare(recipe, output, runner)
  assert digest(output) == digest(there)


def test_documents_are_in_another_order_in_each_pass(sentences):
  output = sentences['full_sentences']
  listed = manifest_file.read(output)['shards']
  shard = next(x for x in listed if x['split'] == 'train')
  file = shard['files']['64']
  parts = np.fromfile(f'{output}/{file["name"]}', store.PART, file['parts'])
  begins = parts['begin'][:, 0].astype(int)
  first = begins[: len(begins) // 2]
  assert 0.2 < (np.diff(first) > 0).mean() < 0.9  # a document's parts ascend
  assert np.mean(first == begins[-len(first) :]) < 0.1


def test_a_tokenizer_of_the_library_gives_the_ids_of_whole_documents(
  corpus, tmp_path
):
  words, path = bpe.load(), tmp_path / 'tokenizer.json'
  path.write_bytes(words.to_bytes())
  how = {'vocab': str(path), 'vocab_size': words.size, 'lowercase': False}
  asked = make_recipe(corpus, **how, lengths=(64,))
  folders = [str(tmp_path / x) for x in ('one', 'two')]
  for folder, workers in zip(folders, (0, 2), strict=True):
    prepare.prepare(asked, folder, prepare.local_runner(workers))
  assert digest(folders[0]) == digest(folders[1])
  there = manifest_file.vocab_path(folders[0])
  assert pathlib.Path(there).read_bytes() == path.read_bytes()
  assert manifest_file.load_tokenizer(folders[0]) == words
  manifest = manifest_file.read(folders[0])
  assert manifest['vocab_sha256'] == words.sha256
  assert manifest['accents'] == 'left to tokenizer.json'
  tokens = {}
  for shard in manifest['shards']:
    raw = pathlib.Path(folders[0], shard['tokens_file']['name']).read_bytes()
    tokens[shard['split']] = tokens.get(shard['split'], '') + words.decode(
      np.frombuffer(raw, '<u2')
    )
  texts = pathlib.Path(corpus).read_text().split('\n\n')
  texts = [' '.join(x.split('\n')) for x in texts]
  assert sum(x in tokens['train'] for x in texts) > len(texts) / 2
  # Merges count, not only pieces.
  model = json.loads(bpe.make())['model']
  model['merges'] = model['merges'][::-1]
  path.write_bytes(bpe.load(model=model).to_bytes())
  with pytest.raises(errors.UserError, match='other words'):
    prepare.prepare(asked, folders[0], ONE)
  with pytest.raises(errors.UserError, match='data.add_words=9 adds pieces'):
    more = dataclasses.replace(asked, add_words=9)
    prepare.prepare(more, str(tmp_path / 'new'), ONE)
