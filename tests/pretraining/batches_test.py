"""Tests of batches made in parts, as many hosts do."""

import numpy as np
import pytest

from bert_jax.data import dataset, prepare
from bert_jax.pretraining import batches
from bert_jax.trainer import task
from tests.data import preparation
from tests.pretraining import pretrain_test

ROWS = np.array([3, 4, 9, 15])  # of 16; a host's rows need not be neighbours
CASES = {
  'mlm': {},
  'packed': {'data__pack': 3},
  'ltr': {'objective__kind': 'ltr', 'objective__nsp': False},
  'rtl, packed': {
    'objective__kind': 'rtl',
    'objective__nsp': False,
    'data__pack': 3,
  },
  'full sentences': {
    'data__rows': 'full_sentences',
    'objective__nsp': False,
  },
  'doc sentences, ltr': {
    'data__rows': 'doc_sentences',
    'objective__kind': 'ltr',
    'objective__nsp': False,
  },
}


@pytest.mark.parametrize('changes', CASES.values(), ids=CASES)
def test_rows_are_those_of_the_global_batch(
  directories, sentences, changes, monkeypatch
):
  """However many are read and masked at a time."""
  c = pretrain_test.make_config(**changes)
  directory = sentences.get(c.data.rows, directories[c.data.pack])
  made = batches.Batches(c, directory)
  phase = task.list_phases(c)[0]
  # Step 20 is in another epoch; the last held-out batch ends with absent rows.
  last = made.eval_batches(phase) - 1
  for make, number in ((made.train_batch, 20), (made.eval_batch, last)):
    whole = make(phase, number)
    monkeypatch.setattr(batches, '_AT_ONCE', 3 * phase.seq_length)
    part = make(phase, number, ROWS)
    monkeypatch.undo()
    assert {*whole} == {*part}
    for name in whole:
      np.testing.assert_array_equal(part[name], whole[name][ROWS])


@pytest.mark.parametrize('pack', [1, 3])
def test_the_mask_rate_falls_in_training_and_held_out_rows_have_the_last(
  directories, pack
):
  c = pretrain_test.make_config(
    data__pack=pack, phases__max_predictions=(16, 16)
  )
  usual = batches.Batches(c, directories[pack])
  c.objective.initial_mask_rate = 0.45
  made = batches.Batches(c, directories[pack])
  phase = task.list_phases(c)[0]
  batch = made.train_batch(phase, 0)
  for step, rate in ((0, 0.45), (20, 0.3), (40, 0.15)):  # of 40 in all
    found = [made.train_batch(phase, step) for _ in range(2)]
    counts = [
      x['masked_lm_weights'].sum() / x['input_mask'].sum() for x in found
    ]
    assert counts == pytest.approx([rate, rate], abs=0.03)
  held_out, expected = (x.eval_batch(phase, 0) for x in (made, usual))
  # 15 % of 32 tokens, alone; packed rows have one shape.
  width = 5 if pack == 1 else batch['masked_lm_ids'].shape[1]
  assert held_out['masked_lm_ids'].shape[1] == width
  for name in expected:
    wide, narrow = sorted(
      (held_out[name], expected[name]), key=lambda x: -x.size
    )
    width = narrow.shape[-1]
    np.testing.assert_array_equal(wide[..., :width], narrow)
    assert not wide[..., width:].any()


@pytest.mark.parametrize('unit', ['token', 'span'])
@pytest.mark.parametrize('rate', [0.15, 0.3])
def test_a_row_of_sentences_is_masked_as_a_whole(sentences, rate, unit):
  c = pretrain_test.make_config(
    data__rows='full_sentences',
    objective__nsp=False,
    objective__mask_rate=rate,
    objective__mask_unit=unit,
    phases__max_predictions=(32, 19),
  )
  made = batches.Batches(c, sentences['full_sentences'])
  for phase in task.list_phases(c):
    batch = made.train_batch(phase, phase.first)
    tokens = batch['input_mask'].sum(1)
    # Rounded once in a row, whatever its parts; 0.3 · 64 is 19.
    wanted = np.minimum(np.rint(tokens * rate), phase.max_predictions)
    predicted = batch['masked_lm_weights'].sum(1)
    assert (predicted <= wanted).all()
    assert (predicted == wanted).mean() > (0.9 if unit == 'token' else 0.2)
    assert batch['masked_lm_ids'].shape[1] == phase.max_predictions
    several = batch['sequence_ids'].max(1) > 1
    assert several.any()
    at = np.take_along_axis(
      batch['sequence_ids'], batch['masked_lm_positions'], 1
    )
    masked_in = np.where(batch['masked_lm_weights'] > 0, at, 0)
    assert (masked_in[several].max(1) > 1).any()


def test_words_are_counted_without_special_tokens_in_packed_rows_too(
  directories,
):
  for pack, directory in directories.items():
    made = batches.Batches(
      pretrain_test.make_config(data__pack=pack), directory
    )
    sample = made.read_sample()
    counts = np.bincount(sample[sample >= 0], minlength=made._words.size)
    reader = made._splits['train', 32].reader
    words = made._words
    every = np.arange(len(reader))
    ids = reader.rows(every, words.cls_id, words.sep_id)['input_ids']
    assert len(sample) == len(reader)  # so all of them are counted
    for word in ('the', '[PAD]', '[CLS]', '[SEP]'):
      expected = 0 if word[0] == '[' else np.sum(ids == words.vocab.index(word))
      assert counts[words.vocab.index(word)] == expected


def test_a_language_model_predicts_the_special_tokens_of_each_row(directory):
  c = pretrain_test.make_config(objective__kind='ltr', objective__nsp=False)
  made = batches.Batches(c, directory)
  rows, counts = len(made.read_sample()), made.count_labels()
  special = counts[[made._words.cls_id, made._words.sep_id]]
  assert special.tolist() == [rows, 2 * rows]


def test_held_out_rows_are_evaluated_by_input(tmp_path):
  paths = [
    preparation.write_corpus(tmp_path / f'{k}.txt', documents, seed=k)
    for k, documents in enumerate((400, 100))
  ]
  for pack in (1, 3):
    directory = str(tmp_path / f'data{pack}')
    recipe = preparation.make_recipe(
      paths[0], inputs=tuple(paths), heldout=0.4, pack=pack, short_seq_prob=0.5
    )
    prepare.prepare(recipe, directory, prepare.local_runner(0))
    c = pretrain_test.make_config(eval__sequences=130, data__pack=pack)
    made, phase = batches.Batches(c, directory), task.list_phases(c)[0]
    inputs = dataset.open_split(directory, 'heldout', 32).inputs
    rows, total = dict.fromkeys(paths, 0), sum(map(len, inputs.values()))
    for i in range(made.eval_batches(phase)):
      batch = made.eval_batch(phase, i)
      weights = batch['next_sentence_weights'].reshape(len(ROWS) * 4, -1)
      rows[made.name_eval_part(phase, i)] += (weights[:, 0] > 0).sum()
    assert sum(rows.values()) == 130 < total
    for path in paths:  # each in proportion to its rows
      assert abs(rows[path] - 130 * len(inputs[path]) / total) < 1
