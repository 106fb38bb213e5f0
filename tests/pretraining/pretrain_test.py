"""Tests of the pre-training task."""

import json
import math

import jax
import numpy as np
import pytest

from bert_jax import config, config_check, errors
from bert_jax.data import manifest_file, masking
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.pretraining.batches import Batches, count_predictions
from bert_jax.trainer import programs, task, tuning
from tests import models

SMALL = {
  'model__num_layers': 1,
  'model__hidden_size': 8,
  'model__mlp_size': 12,
  'model__dropout': 0.0,
}


def make_config(**changes):
  c = config.pretraining('tiny')
  fields = {
    'data.vocab_size': 120,
    'phases.seq_length': (32, 64),
    'phases.steps': (30, 10),
    'phases.batch_size': (16, 8),
    'phases.max_predictions': (5, 10),
    'optimizer.warmup_steps': 3,
    'eval.sequences': 50,
    **{k.replace('__', '.'): v for k, v in changes.items()},
  }
  c.update_from_flattened_dict(fields)
  config_check.check(c)
  return c


def batches(c, directory, steps):
  made = pretrain.make_task(c, directory)
  first = task.list_phases(c)[0]
  return [made.train_batch(first, step) for step in steps]


def same(a, b):
  return all(np.array_equal(a[name], b[name]) for name in {*a, *b})


def test_a_batch_is_a_function_of_its_step(directory):
  c = make_config()
  forward = batches(c, directory, [3, 4, 20])
  backward = batches(c, directory, [20, 4, 3])[::-1]
  assert all(same(a, b) for a, b in zip(forward, backward, strict=True))
  assert not same(forward[0], forward[1])
  other = batches(make_config(seed=1), directory, [3])
  assert not same(forward[0], other[0])


def test_an_epoch_shows_every_record_once_and_masks_change(directory):
  size = manifest_file.read(directory)['lengths']['32']['rows']
  c = make_config(phases__batch_size=(size, 8))  # an epoch is a batch
  made, phase = pretrain.make_task(c, directory), task.list_phases(c)[0]

  def texts(epoch):
    """Returns {text with the hidden words put back: masked text}."""
    batch, found = made.train_batch(phase, epoch), {}
    for i, hidden in enumerate(batch['input_ids'].tolist()):
      ids = np.array(hidden)
      used = batch['masked_lm_weights'][i] > 0
      at = batch['masked_lm_positions'][i][used]
      ids[at] = batch['masked_lm_ids'][i][used]
      found[tuple(ids)] = hidden
    return found

  first, second = texts(0), texts(1)
  assert set(first) == set(second)
  assert len(first) > 0.95 * size  # a few pairs of the small corpus are equal
  changed = [first[t] != second[t] for t in first]
  assert np.mean(changed) > 0.9


def test_a_phase_of_the_same_length_continues_the_epoch(directory):
  size = manifest_file.read(directory)['lengths']['32']['rows']
  c = make_config(
    phases__seq_length=(64, 32, 32, 64),
    phases__steps=(3, size // 8, size // 4 + 4, 3),
    phases__batch_size=(8, 4, 2, 8),
    phases__accumulate=(1, 1, 1, 1),
    phases__max_predictions=(10, 5, 3, 10),
  )
  made, phases = Batches(c, directory), task.list_phases(c)
  found = [
    list(zip(*made.find_records(p, step, np.arange(p.batch_size)), strict=True))
    for p in phases
    for step in range(p.first, p.first + p.steps)
  ]
  middle = sum(found[3:-3], [])
  first = [record for record, epoch in middle if epoch == 0]
  assert sorted(first) == list(range(size))
  assert found[:3] != found[-3:]  # after another length, another order


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {'data__pack': 3},
    {'objective__kind': 'ltr', 'objective__nsp': False},
    {'objective__initial_mask_rate': 0.4, 'phases__max_predictions': (13, 26)},
    {'phases__mask_rates': (0.4, 0.1), 'phases__max_predictions': (13, 26)},
    {'phases__mask_rates': (0.4, 0.1), 'data__pack': 3},
    {'data__rows': 'full_sentences', 'objective__nsp': False},
    {'data__rows': 'doc_sentences', 'objective__nsp': False},
  ],
  ids=[
    *('mlm', 'packed', 'ltr', 'falling', 'by phase', 'packed by phase'),
    *('full sentences', 'doc sentences'),
  ],
)
def test_shapes_are_known_without_data(directories, sentences, changes):
  c = make_config(**changes)
  made, objective = (
    pretrain.make_task(c, sentences.get(c.data.rows, directories[c.data.pack])),
    pretrain.make_objective(c),
  )
  phase = task.list_phases(c)[0]
  for batch, sizes in (
    (made.train_batch(phase, 0), phase),
    (made.eval_batch(phase, 0), objective.evaluate_as(phase)),
  ):
    shapes = objective.batch_shapes(sizes, 16)
    assert {name: (x.shape, x.dtype) for name, x in shapes.items()} == {
      name: (x.shape, x.dtype) for name, x in batch.items()
    }


def test_phases_are_masked_at_their_rates_and_held_out_rows_at_one(directory):
  c = make_config(
    phases__mask_rates=(0.3, 0.1),
    phases__seq_length=(32, 32),
    phases__batch_size=(256, 256),
    phases__max_predictions=(10, 10),
  )
  made = pretrain.make_task(c, directory)
  trained, held_out = [], []
  for phase in task.list_phases(c):
    trained.append(made.train_batch(phase, phase.first))
    held_out.append(made.eval_batch(phase, 0))
  shares = [
    x['masked_lm_weights'].sum() / x['input_mask'].sum()
    for x in (*trained, *held_out)
  ]
  assert shares[:2] == pytest.approx([0.3, 0.1], abs=0.02)
  first, second = (x['input_ids'] for x in held_out)
  assert np.array_equal(first, second)


def test_phases_of_the_same_shape_may_have_other_wavelengths():
  fields = {
    'model__body': 'modern',
    'model__norm': 'pre',
    'objective__nsp': False,
  }
  fields |= {'model__activation': 'gelu', 'model__attention_init': 'random'}
  c = make_config(
    **SMALL,
    **fields,
    phases__seq_length=(32, 32, 32),
    phases__steps=(3, 3, 3),
    phases__batch_size=(4, 4, 4),
    phases__accumulate=(1, 1, 1),
    phases__max_predictions=(5, 5, 5),
    phases__rope_thetas=(1e4, 5.0, 1e4),
  )
  whole, mesh = pretrain.make_objective(c), device_mesh.make_mesh(1)
  texts = []
  for phase in task.list_phases(c):
    own = tuning.tune(whole, mesh, phase)
    train, *_ = programs.list_phase(c, own, mesh, phase)
    texts.append(train.lower().as_text())
  assert texts[0] == texts[2] != texts[1]
  found = [config.model_config(c, x).rope_theta for x in (0, 3, 4, 6, 7, 9)]
  assert found == [1e4, 1e4, 5, 5, 1e4, 1e4]
  c.phases.rope_thetas = (1e4, 1e4, 5.0)
  assert config.model_config(c).rope_theta == 5  # which is exported


@pytest.mark.parametrize('pack, most', [(1, 50), (3, 100_000)])
def test_evaluation_sees_each_pair_once_and_pads_the_last_batch(
  directories, pack, most
):
  c = make_config(data__pack=pack, eval__sequences=most)
  made, phase = pretrain.make_task(c, directories[pack]), task.list_phases(c)[0]
  batches = [made.eval_batch(phase, i) for i in range(made.eval_batches(phase))]
  shards = manifest_file.read(directories[pack])['shards']
  counts = [
    s['files']['32']['pairs'] for s in shards if s['split'] == 'heldout'
  ]
  size = min(most, sum(counts))
  assert sum(b['next_sentence_weights'].sum() for b in batches) == size
  for batch in batches if pack == 1 else ():
    absent = batch['next_sentence_weights'] == 0
    assert batch['masked_lm_weights'][absent].sum() == 0


def test_rows_of_sentences_are_evaluated_and_described_without_pairs(sentences):
  c = make_config(
    data__rows='full_sentences', objective__nsp=False, eval__sequences=100_000
  )
  made = pretrain.make_task(c, sentences['full_sentences'])
  phase = task.list_phases(c)[0]
  batches = [made.eval_batch(phase, i) for i in range(made.eval_batches(phase))]
  present = sum((x['masked_lm_weights'].sum(1) > 0).sum() for x in batches)
  shards = manifest_file.read(sentences['full_sentences'])['shards']
  held = [x for x in shards if x['split'] == 'heldout']
  assert present == sum(x['files']['32']['records'] for x in held)
  batch = made.train_batch(phase, 0)
  count = batch['sequence_ids'].max(1).mean()
  line, _ = made.describe(batch)
  assert line.endswith(f'% of tokens to predict, {count:.3g} documents per row')
  assert f' {1 - batch["input_mask"].mean():.1%} padding' in line


def test_the_modern_body_says_that_it_cannot_tell_pairs_apart(directory):
  c = make_config()
  made = pretrain.make_task(c, directory)
  batch = made.train_batch(task.list_phases(c)[0], 0)
  lines = pretrain.describe(7.0, 'modern', batch)
  assert lines[:-1] == pretrain.describe(7.0, 'classic', batch)
  assert lines[-1].startswith('WARNING: rows hold pairs of texts')


def test_the_plateau_ends_a_nat_below_the_unigram_entropy(directory):
  entropy = manifest_file.read(directory)['unigram_entropy']
  assert pretrain.make_task(make_config(), directory).plateau == entropy - 1
  c = make_config(init_from='a trained model')
  assert pretrain.make_task(c, directory).plateau is None


def test_work_is_counted_over_phases():
  c = make_config()
  objective, phases = pretrain.make_objective(c), task.list_phases(c)
  short, long = (objective.flops(phase) for phase in phases)
  found = task.count_work(objective, phases, 34)
  assert found['tokens'] == 30 * 16 * 32 + 4 * 8 * 64
  assert found['flops'] == pytest.approx(30 * short + 4 * long)
  assert task.count_work(objective, phases, 2)['flops'] == 2 * short


def test_training_compares_a_sample_of_words_and_evaluation_all(directory):
  c = make_config(objective__sampled_words=40, **SMALL)
  made, full = (
    pretrain.make_task(x, directory).objective
    for x in (c, make_config(**SMALL))
  )
  phase = task.list_phases(c)[0]
  # 6 x 16 rows x 5 predictions x 8 dimensions of 80 words
  assert full.flops(phase) - made.flops(phase) == 6 * 16 * 5 * 8 * 80
  params = jax.jit(full.init)(jax.random.key(0))
  batch = batches(c, directory, [0])[0]
  keys = None, *jax.random.split(jax.random.key(0), 2)
  sampled, whole = map(jax.jit, (made.compute, full.compute))
  exact, *found = (sampled(params, batch, x)[0]['mlm_loss'] for x in keys)
  assert exact == whole(params, batch, None)[0]['mlm_loss']
  assert found[0] != found[1]
  np.testing.assert_allclose(found, exact, rtol=0.05)


def test_left_to_right_predicts_the_next_token(directory):
  c = make_config(
    objective__kind='ltr', objective__nsp=False, objective__unigram_bias=False
  )
  (batch,) = batches(c, directory, [0])
  real = batch['input_mask'][0].sum()
  ids = batch['input_ids'][0]
  assert batch['masked_lm_ids'][0].tolist() == ids[1:].tolist()
  assert batch['masked_lm_weights'][0].sum() == real - 1
  made = pretrain.make_task(c, directory)
  assert made.objective.expected_loss == pytest.approx(math.log(120))
  assert count_predictions(c.objective, 1, task.list_phases(c)[0]) == 31


@pytest.mark.slow
def test_right_to_left_is_left_to_right_of_the_reversed_text(directory):
  c = make_config(objective__kind='rtl', objective__nsp=False)
  c.model.attention_dropout = c.model.dropout = 0.0
  (batch,) = batches(c, directory, [0])
  lengths = batch['input_mask'].sum(1)
  assert len(set(lengths.tolist())) > 1  # some rows are padded
  # Reversed tokens, the padding still at the end.
  place = np.arange(batch['input_ids'].shape[1])
  place = np.where(
    place < lengths[:, None], lengths[:, None] - 1 - place, place
  )
  turned = {
    name: np.take_along_axis(batch[name], place, 1)
    for name in ('input_ids', 'input_mask', 'segment_ids')
  }
  turned = masking.predict_next_tokens(turned | {'position_ids': place})
  module = pretrain.make_module(c)
  params = models.make_params(module.config, with_nsp=False)
  loss, accuracy = (
    pretrain.compute_sums(module, params, batch, None)[0][name]
    for name in ('mlm_loss', 'mlm_accuracy')
  )
  c.objective.kind = 'ltr'
  module = pretrain.make_module(c)
  other, _ = pretrain.compute_sums(module, params, turned, None)
  np.testing.assert_allclose(loss, other['mlm_loss'], rtol=1e-5)
  assert accuracy == other['mlm_accuracy']
  wrong, _ = pretrain.compute_sums(module, params, batch, None)
  assert abs(wrong['mlm_loss'] / loss - 1) > 1e-4


def test_the_unit_of_masking_is_passed_on(directory):
  token, span = (
    batches(make_config(objective__mask_unit=unit), directory, [0])[0]
    for unit in ('token', 'span')
  )
  assert not same(token, span)
  assert span['masked_lm_weights'].sum() > 0


def test_facts_say_what_changed(directories):
  old, new = (
    pretrain.make_task(make_config(data__pack=pack), path).facts
    for pack, path in directories.items()
  )
  kept = json.loads(json.dumps(old))  # as a checkpoint keeps them
  assert errors.find_changes(kept, old) == []
  found = errors.find_changes(kept, new)
  assert found[0] == 'data.recipe.pack was 1, is 3'
  assert found[-1].startswith('data_sha256 was ')


def test_each_input_that_is_evaluated_alone_has_a_line():
  means = {
    f'{name}{of}': value
    for of, value in (('', 0.5), ('/a/*', 0.25))
    for name in ('mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy')
  }
  assert pretrain.word(means) == (
    'mlm 0.500 acc 50.0% | nsp 0.500 acc 50.0%\n'
    '  a/*: mlm 0.250 acc 25.0% | nsp 0.250 acc 25.0%'
  )


def test_untrained_models_predict_by_word_frequency_if_asked_to(directory):
  sizes = {
    'model__num_layers': 1,
    'model__hidden_size': 8,
    'model__mlp_size': 8,
  }
  c = make_config(objective__unigram_bias=True, **sizes)
  made = pretrain.make_task(c, directory)
  params = jax.jit(made.objective.init)(jax.random.key(0))
  shares = np.exp(params['mlm']['bias'][:120])  # others are padding rows
  assert shares.sum() == pytest.approx(1, abs=1e-5)
  words = manifest_file.load_tokenizer(directory).vocab
  # 'the' is one of 29 words, all as frequent; special tokens are never right.
  assert shares[words.index('the')] == pytest.approx(1 / 29, rel=0.2)
  assert shares[words.index('[MASK]')] < 1e-3
  assert made.objective.expected_loss == pytest.approx(
    manifest_file.read(directory)['unigram_entropy'] + math.log(2), rel=0.02
  )
