"""Runs that continue from a trained model."""

import dataclasses
import functools
import json
import os
import shutil

import jax
import numpy as np
import pytest

from bert_jax import errors, param_names
from bert_jax.config import flatten, model_config
from bert_jax.corpus import text_files
from bert_jax.data import manifest_file
from bert_jax.interop import hugging_face
from bert_jax.model import heads
from bert_jax.pretraining import adaptation, init_from, pretrain, training_data
from bert_jax.tokenization import fast_tokenizer
from bert_jax.tokenization.tokenizer import AddedWord, Tokenizer, read_vocab
from bert_jax.trainer.fit import fit
from bert_jax.trainer.task import Task
from bert_jax.workdir import checkpoint_reader, claim, log
from tests import bpe, models, training
from tests.weight_files import tf_files
from tests.workdir import checkpoints

WORDS = models.VOCAB  # 11, as training.VOCAB
# The shortest that a run may have; the batches are shorter.
LENGTH = {'phases__seq_length': (8,), 'model__max_positions': 8}
# Without dropout, so that what several tests train is compiled once.
NO_DROPOUT = {'model__dropout': 0.0, 'model__attention_dropout': 0.0}


def train(c, workdir, made=None):
  return fit(c, made or training.make_task(c), str(workdir))


@pytest.fixture(autouse=True)
def no_held_out_text(monkeypatch):
  # The folders of data have only a vocabulary.
  monkeypatch.setattr(adaptation, 'read_texts', lambda *given: {})


@pytest.fixture(scope='module')
def source(tmp_path_factory):
  """A run as it looks after three updates, made without training."""
  workdir = tmp_path_factory.mktemp('source')
  c = training.small_config(steps=(3,), **LENGTH)
  vocab = models.write_data(workdir / 'data')
  recipe = {'lowercase': True, 'strip_accents': True}
  facts = {'data': {'recipe': recipe}}
  facts['vocab_sha256'] = text_files.compute_sha256(vocab)
  random = np.random.default_rng(0)
  params = jax.tree.map(
    lambda x: random.normal(0, 0.3, x.shape).astype(np.float32),
    models.shapes(model_config(c), True),
  )
  return checkpoints.write_run(workdir, c, facts, {3: params})


@pytest.fixture
def trained(source):
  """The source's parameters."""
  return checkpoint_reader.read(os.path.join(source, 'checkpoints'))[0]


def make_config(source, data, words=WORDS, **changes):
  """Returns a config that starts from the source, with its data folder."""
  models.write_data(data, words)
  fields = LENGTH | NO_DROPOUT | {'data__dir': str(data)} | changes
  c = training.small_config(**fields)
  c.init_from = source
  c.data.vocab_size, c.data.strip_accents = len(words), 'true'
  c.log.every = 1
  return c


def take_model(c, workdir):
  return init_from.take_model(c, str(workdir))


def start(c):
  """Returns (parameters, facts) of a run before its first update."""
  new = jax.device_get(training.make_objective(c).init(jax.random.key(c.seed)))
  return *init_from.start(c, c.data.dir, new), new


@pytest.mark.slow
def test_a_run_goes_on_when_its_source_is_gone(source, trained, tmp_path):
  moved = shutil.copytree(source, tmp_path / 'source')
  c = make_config(str(moved), tmp_path / 'data', checkpoint__every=3)
  whole = train(c, tmp_path / 'a', apply(c, training.make_task(c)))

  def failing(step):
    if step == 4:
      shutil.rmtree(moved, ignore_errors=True)
      if not (tmp_path / 'failed').exists():
        (tmp_path / 'failed').touch()
        raise OSError('the disk was pulled out')
    return training.make_batch(step)

  with pytest.raises(OSError, match='pulled out'):
    train(c, tmp_path / 'b', apply(c, training.make_task(c, batch=failing)))
  assert not moved.exists()
  claim.adopt(str(tmp_path / 'b'), c)
  assert flatten(take_model(c, tmp_path / 'b')) == flatten(c)
  resumed = train(c, tmp_path / 'b', apply(c, training.make_task(c)))
  models.assert_same(whole, resumed)
  for run in 'ab':
    _, facts = checkpoint_reader.read(str(tmp_path / run / 'checkpoints'))
    assert facts['init_from']['path'] == str(moved)
    assert facts['init_from']['origin'].startswith('step 3, fingerprint=')
  rows = log.read(str(tmp_path / 'b' / 'metrics.jsonl'))
  told = [r['init_from'] for r in rows if r['kind'] == 'run']
  assert told == [facts['init_from']] * 2
  # The first row of the log is before any update.
  first = next(r for r in rows if r['kind'] == 'train')
  batch = training.make_batch(0)
  module = heads.PretrainingModel(model_config(c))
  compute = jax.jit(functools.partial(pretrain.compute_sums, module, key=None))
  total = float(compute(trained, batch)[0]['mlm_loss'])
  expected = total / batch['masked_lm_weights'].sum()
  assert first['mlm_loss'] == pytest.approx(expected, rel=1e-5)
  assert first['learning_rate'] == 0  # the schedule starts new


def apply(c, made) -> Task:
  start = functools.partial(init_from.start, c, c.data.dir)
  return dataclasses.replace(made, start=start)


def test_added_words_begin_as_the_mean_of_their_pieces(
  source, trained, tmp_path
):
  # cow is unknown; ##ss is as cats.
  c = make_config(source, tmp_path / 'data', [*WORDS, 'cow', 'cats', '##ss'])
  params, facts, new = start(c)
  for part in ('encoder', 'nsp'):
    models.assert_same(params[part], trained[part])
  assert facts['changes'] == [
    'words 11 to 13: new embeddings and output biases, 2 of them the means of their '
    "pieces'"
  ]
  # Other models' files, too, some of which have more rows than words.
  theirs = dataclasses.replace(model_config(c), vocab_size=16)
  padded, c.init_from = models.make_params(theirs), str(tmp_path / 'theirs')
  tokenizer = Tokenizer(tuple(WORDS))
  tf_files.write_model(c.init_from, padded, theirs, tokenizer)
  again, *_ = start(c)
  for there, here in ((trained, params), (padded, again)):
    there, here, fresh = map(param_names.flatten, (there, here, new))
    for name in ('embeddings/word/embedding', 'mlm/bias'):
      assert here[name].shape[0] == 256  # a multiple of it, behind the words
      np.testing.assert_array_equal(here[name][:11], there[name][:11])
      for word, pieces in {12: [6, 8], 13: [8, 8]}.items():
        mean = there[name][pieces].mean(0)
        np.testing.assert_array_equal(here[name][word], mean)
      new_rows = [11, *range(14, 256)]
      np.testing.assert_array_equal(here[name][new_rows], fresh[name][new_rows])


def test_positions_are_resized_when_asked_to(source, trained, tmp_path):
  theirs = trained['embeddings']['position']['embedding']  # [8, D]
  c = make_config(source, tmp_path / 'data', model__max_positions=11)
  assert take_model(c, tmp_path).model.max_positions == 8
  c.resize_positions = True
  assert (c := take_model(c, tmp_path)).model.max_positions == 11
  params, facts, new = start(c)
  found, fresh = (
    x['embeddings']['position']['embedding'] for x in (params, new)
  )
  np.testing.assert_array_equal(found, np.concatenate([theirs, fresh[8:]]))
  assert facts['changes'] == ['positions 8 to 10: new embeddings']
  new['embeddings']['position']['embedding'] = fresh[:5]
  c.model.max_positions = 5
  params, facts = init_from.start(c, c.data.dir, new)
  found = params['embeddings']['position']['embedding']
  np.testing.assert_array_equal(found, theirs[:5])
  assert facts['changes'] == ['positions 5 to 7: left out']


def test_the_config_becomes_that_of_the_source(source, tmp_path, capsys):
  c = make_config(
    source,
    tmp_path / 'data',
    model__hidden_size=16,
    model__num_layers=2,
    model__activation='relu',
    model__norm='pre',
    model__dropout=0.3,
    model__initializer_std=0.3,
    objective__kind='ltr',
    objective__nsp=False,
    data__lowercase=False,
  )
  given = flatten(c)
  found = flatten(take_model(c, tmp_path))
  changed = {name: x for name, x in found.items() if x != given[name]}
  assert changed == {
    'data.lowercase': True,
    'model.activation': 'gelu_tanh',
    'model.hidden_size': 8,
    'model.norm': 'post',
    'model.num_layers': 1,
    'objective.kind': 'mlm',
  }
  assert capsys.readouterr().out == (
    f'as init_from={source}: data.lowercase=True, '
    "model.activation='gelu_tanh', model.hidden_size=8, model.norm='post', "
    "model.num_layers=1, objective.kind='mlm'\n"
  )


def test_the_vocabulary_is_that_of_the_source(source, tmp_path):
  run = str(tmp_path / 'run')
  os.mkdir(run)
  c = make_config(source, tmp_path / 'data')
  c.data.dir, c.data.vocab_size = '', 30522
  found = take_model(c, run)
  assert found.data.vocab == os.path.join(run, 'source_vocab.txt')
  assert found.data.vocab_size == 11
  init_from.write_vocabulary(found, run)
  assert read_vocab(found.data.vocab) == tuple(WORDS)
  # A run that has begun needs the source no more.
  claim.adopt(run, found)
  os.mkdir(os.path.join(run, 'checkpoints'))
  c.init_from = 'gone'
  assert flatten(take_model(c, run)) == flatten(found) | {'init_from': 'gone'}
  init_from.write_vocabulary(take_model(c, run), run)
  # What the user gives is not dropped, but compared with the saved config.
  c.data.vocab, c.model.dropout = 'mine.txt', 0.3
  c.resize_positions, c.model.max_positions = True, 9
  found = take_model(c, run)
  assert (found.data.vocab, found.model.dropout) == ('mine.txt', 0.3)
  assert found.model.max_positions == 9


def test_a_run_that_has_begun_keeps_what_was_filled_in(source, tmp_path):
  c = make_config(source, tmp_path / 'data')
  filled = {
    'model.num_layers': 3,
    'model.norm': 'pre',
    'objective.kind': 'ltr',
    'objective.nsp': False,
    'data.lowercase': False,
    'data.strip_accents': 'false',
    'data.vocab_size': 99,
  }
  saved = flatten(c) | filled | {'seed': 5}
  del saved['model.norm_epsilon']  # as if it were new
  (tmp_path / 'run' / 'checkpoints').mkdir(parents=True)
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(saved))
  found = flatten(take_model(c, tmp_path / 'run'))
  assert found == flatten(c) | filled
  (tmp_path / 'run' / 'config.json').unlink()
  (tmp_path / 'run' / 'checkpoints' / '5').mkdir()
  with pytest.raises(errors.UserError, match='config.json is missing, which'):
    take_model(c, tmp_path / 'run')


def export(c, path, words=WORDS, **changes) -> str:
  """Exports a model like a config's, but with changes; returns its path."""
  bert = dataclasses.replace(model_config(c), **changes)
  params = models.make_params(bert, not bert.modern)
  words = Tokenizer(tuple(words))
  hugging_face.export(str(path), params, bert, words)
  return str(path)


@pytest.mark.parametrize(
  'change', [{'activation': 'relu'}, {'causal': True}, {'num_layers': 2}]
)
def test_another_model_than_at_first_is_refused(source, tmp_path, change):
  c = make_config(source, tmp_path / 'data')
  c.init_from = export(c, tmp_path / 'theirs', **change)
  message = (
    'is another model than when this run was set up: .* is (.relu|2|.ltr)'
  )
  with pytest.raises(errors.UserError, match=message):
    init_from.start(c, c.data.dir, {})


def test_added_words_that_cannot_occur_are_said(source, tmp_path, capsys):
  added = (
    'cow',
    '##w',
    '[x]',
    'Babylon',
    'new york',
    'café',
    '##É',
    "don't",
    '##-',
  )
  c = make_config(source, tmp_path / 'data', [*WORDS, *added])
  take_model(c, tmp_path)
  found = capsys.readouterr().out
  assert 'WARNING: 6 added words of the vocabulary cannot occur' in found
  assert found.endswith(': Babylon, new york, café and 3 more\n')


def test_unused_entries_may_be_replaced_and_are_said(tmp_path, capsys):
  theirs = [*WORDS[:6], '[unused0]', '<unused1>', *WORDS[8:]]
  added = (AddedWord('the', 5, True, False, False, True),)
  bert = model_config(make_config('', tmp_path / 'data', theirs))
  path = str(tmp_path / 'theirs')
  words = Tokenizer(tuple(theirs), added=added)
  hugging_face.export(path, models.make_params(bert), bert, words)
  ours = [*WORDS[:6], 'cow', '<unused1>', *WORDS[8:]]
  take_model(make_config(path, tmp_path / 'data', ours), tmp_path / 'run')
  found = capsys.readouterr().out
  assert "replaced, whose embeddings are kept (1): 6 is 'cow' now\n" in found
  assert 'WARNING: the: these words, which' in found
  # With the model's own vocabulary they stay whole, in the run's data, too.
  c, run = make_config(path, tmp_path / 'data', theirs), str(tmp_path / 'own')
  text = ('the e\ne the es' + '\nthe e' * n for n in range(1, 40))
  (tmp_path / 'a.txt').write_text('\n\n'.join(text))
  c.data.dir, c.data.input = '', str(tmp_path / 'a.txt')
  c.data.update(layout='sentences', min_chars=0, heldout=0.3, workers=1)
  c = take_model(c, run)
  assert 'WARNING: the: these words' not in capsys.readouterr().out
  init_from.write_vocabulary(c, run)
  training_data.prepare_data(c, run)
  assert manifest_file.load_tokenizer(f'{run}/data') == words
  training_data.prepare_data(c, run)  # as when it goes on
  c = make_config(path, tmp_path / 'data', [*theirs[:5], 'cow', *theirs[6:]])
  with pytest.raises(errors.UserError, match='word 5 of .* or in the place of'):
    take_model(c, tmp_path / 'run')


def test_a_vocabulary_with_more_words_needs_no_size(source, tmp_path):
  c = make_config(source, tmp_path / 'data', [*WORDS, 'cow'])
  c.data.vocab_size = 30522
  assert take_model(c, tmp_path).data.vocab_size == 12  # of data.dir
  c.data.dir, c.data.vocab = '', str(tmp_path / 'data' / 'vocab.txt')
  found = take_model(c, tmp_path)
  assert (found.data.vocab_size, found.data.vocab) == (12, c.data.vocab)


def test_a_causal_model_makes_the_objective_causal(source, tmp_path):
  c = make_config(source, tmp_path / 'data')
  c.init_from = export(c, tmp_path / 'theirs', causal=True)
  found = take_model(c, tmp_path)
  assert (found.objective.kind, found.objective.nsp) == ('ltr', False)
  c.init_from = export(c, tmp_path / 'more', type_vocab_size=3)
  with pytest.raises(errors.UserError, match='has 3 segment embeddings'):
    take_model(c, tmp_path)


def test_a_modern_source_has_as_many_positions_as_rows_need_and_no_pairs(
  source, tmp_path
):
  c = make_config(source, tmp_path / 'data', phases__seq_length=(16,))
  modern = {'body': 'modern', 'norm': 'pre', 'activation': 'gelu'}
  modern['rope_theta'] = 2e4
  c.init_from = export(c, tmp_path / 'theirs', **modern)  # of 8 positions
  found = take_model(c, tmp_path)
  assert (found.model.body, found.model.max_positions) == ('modern', 16)
  assert not found.objective.nsp
  _, facts, _ = start(found)
  assert facts['changes'] == []
  assert found.model.rope_theta == 2e4
  c.data.dir = ''
  run = tmp_path / 'run'
  found = take_model(c, run)
  assert found.data.rows == 'full_sentences'  # unless given data have pairs
  (run / 'checkpoints').mkdir(parents=True)
  claim.adopt(str(run), found)
  assert flatten(take_model(c, run)) == flatten(found)
  c.phases.rope_thetas = (1e4,)  # as configs/modern.py begins
  with pytest.raises(
    errors.UserError, match='of 20000, and .* with 10000; give'
  ):
    take_model(c, tmp_path)
  c.phases.rope_thetas = (1.6e5,)
  take_model(c, tmp_path)
  c.resize_positions = True
  with pytest.raises(errors.UserError, match='has no table of positions'):
    take_model(c, tmp_path)


@pytest.mark.parametrize(
  ('words', 'changes', 'message'),
  [
    (
      [*WORDS[:6], 'cow', *WORDS[7:]],
      {},
      "word 6 of .* is 'cat', in .* it is 'cow'",
    ),
    (
      WORDS[:-1],
      {},
      "word 10 of .* is 'e', in .* it is missing; use the vocab",
    ),
    (
      WORDS,
      {'phases__seq_length': (16,)},
      '16 is more than the 8 positions .* less, or resize_positions=True',
    ),
  ],
)
def test_what_the_source_cannot_do_is_refused(
  source, tmp_path, words, changes, message
):
  c = make_config(source, tmp_path / 'data', words, **changes)
  with pytest.raises(errors.UserError, match=message):
    take_model(c, tmp_path)


def test_accents_must_be_as_the_source_has_them(source, tmp_path):
  c = make_config(source, tmp_path / 'data')
  take_model(c, tmp_path)
  models.write_data(tmp_path / 'data', strip_accents=False)
  message = 'trained with strip_accents=True, .*data was prepared with False; prepare the data again with data.strip'
  with pytest.raises(errors.UserError, match=message):
    take_model(c, tmp_path)
  with pytest.raises(errors.UserError, match=message):
    init_from.start(c, c.data.dir, {})
  # Before data is prepared: the vocabulary of the source has an é, but the
  # source does not use it.
  c.data.strip_accents = 'auto'
  c.data.dir, c.data.vocab = '', str(tmp_path / 'data' / 'vocab.txt')
  assert take_model(c, tmp_path).data.strip_accents == 'true'


def test_a_tokenizer_of_the_library_is_taken_from_the_source(tmp_path):
  path, run, words = str(tmp_path / 'hf'), str(tmp_path / 'run'), bpe.load()
  sizes = {'vocab_size': words.size, 'type_vocab_size': 2}
  config = dataclasses.replace(models.CONFIG, **sizes)
  params = models.make_params(config)
  hugging_face.export(path, params, config, words)
  c = make_config(path, tmp_path / 'data')
  c.data.dir, c.resize_positions = '', True
  found = take_model(c, run)
  assert found.data.vocab == os.path.join(run, 'source_tokenizer.json')
  assert (found.data.vocab_size, found.data.lowercase) == (words.size, False)
  init_from.write_vocabulary(found, run)
  theirs = hugging_face.read(path).tokenizer
  assert fast_tokenizer.load(found.data.vocab) == theirs
  c.data.vocab = str(tmp_path / 'tokenizer.json')
  text = theirs.to_bytes().replace(b'<mail>', b'<post>')
  (tmp_path / 'tokenizer.json').write_bytes(text)
  with pytest.raises(errors.UserError, match='has another tokenizer than'):
    take_model(c, run)
