"""What the README.md of an exported model says."""

import json
import os

import numpy as np
import pytest

from bert_jax.config import recipes, to_json
from bert_jax.data import manifest_file
from bert_jax.interop import hugging_face
from bert_jax.pretraining import model_card
from tests import models

MANIFEST = {
  'version': '9.8.7',
  'recipe': {
    'inputs': ['books/*'],
    'language': 'de',
    'vocab_size': 11,
    'lowercase': True,
    'strip_accents': True,
  },
  'inputs': [{'input': 'books/*', 'documents': 1200, 'text_bytes': 34567}],
  'documents': {'train': 1100, 'heldout': 100, 'bytes': 34567},
  'sentences': 5000,
  'tokens': 60000,
  'unknown_share': 0.0123,
  'unigram_entropy': 6.4321,
  'shards': [
    {'split': 'train', 'files': {'128': {'records': 900}}},
    {
      'split': 'heldout',
      'files': {'128': {'records': 70, 'pairs': 90, 'random': 36}},
    },
    {
      'split': 'heldout',
      'files': {'128': {'records': 7, 'pairs': 10, 'random': 6}},
    },
  ],
}


def make_row(step, **more):
  return {
    'kind': 'eval',
    'step': step,
    'mlm_loss': 2.34567,
    'mlm_perplexity': 10.44,
    'mlm_accuracy': 0.4567,
    **more,
  }


def make_config(**changes):
  c = recipes.pretraining('tiny')
  c.phases.seq_length = (128, 128)
  c.update_from_flattened_dict(changes)
  return c


def make_text(rows=(), **changes):
  return model_card.make_card(make_config(**changes), MANIFEST, rows, 4386178)


def test_a_card_says_how_long_the_rows_were():
  rows = [{'kind': 'run', 'step': 0}, make_row(1000)]
  line = 'It was trained on rows of 128 tokens at most.'
  assert line in make_text(rows)
  assert 'trained on rows' not in make_text(
    rows, **{'model.max_positions': 128}
  )
  rows[0]['init_from'] = {
    'path': 'x',
    'origin': 'y',
    'changes': [],
    'trained_length': 512,
  }
  assert 'trained on rows' not in make_text(rows)


def test_figures_come_from_the_manifest_and_the_log():
  text = make_text([{'kind': 'run', 'step': 0}, make_row(1000)])
  for words in (
    '4,386,178 parameters: 2 layers, hidden size 128, 2 heads, 512 positions',
    'Pre-trained by bert_jax 9.8.7.',
    '| `books/*` | 1,200 | 34,567 |',
    '1,100 documents, or parts of long ones, to train on: 5,000 sentences, '
    '60,000 tokens, 1.23% of',
    'On 100 documents, or parts of long ones, that it was not trained on, at '
    'most 77 sequences',
    '| step | MLM loss | perplexity | MLM accuracy |\n',
    '| 1,000 | 2.346 | 10.4 | 45.7% |',
    'an MLM loss of 6.432',
    '| optimizer.learning_rate | `0.0001` |',
    '| phases.steps | `[900000, 100000]` |',
    # Of the data, which may have been prepared with another config.
    '| data.inputs | `["books/*"]` |',
    '\nlanguage: de\n',
    '# FILL IN the licence',
    '\nlicense: unknown\n',
  ):
    assert words in text
  assert 'python-docs' not in text and 'checkpoint.' not in text


def test_several_inputs_have_a_table_of_their_own():
  more = {
    f'{name}/{x}': value
    for x, value in (('a/*', 0.25), ('b', 0.5))
    for name in ('mlm_loss', 'mlm_accuracy')
  }
  text = make_text([make_row(10, **more)])
  assert '| at the end, by input | MLM loss | MLM accuracy |' in text
  assert '| `a/*` | 0.250 | 25.0% |\n| `b` | 0.500 | 50.0% |' in text
  assert 'by input' not in make_text([make_row(10)])


def test_a_long_log_is_thinned_out_and_its_ends_stay():
  rows = [make_row(step, nsp_accuracy=0.5) for step in range(10, 1010, 10)]
  steps = [
    line.split()[1]
    for line in make_text(rows).split('\n')
    if line.endswith('| 50.0% |')
  ]
  assert len(steps) == 12
  assert (steps[0], steps[-1]) == ('10', '1,000')
  assert 'Not evaluated.' in make_text()


def test_rows_that_lack_something_are_left_out():
  whole = [make_row(step, nsp_accuracy=0.5) for step in (10, 20, 30)]
  damaged = {k: whole[1][k] for k in whole[1] if k != 'mlm_loss'}
  assert make_text([whole[0], damaged, whole[2]]) == make_text(whole[::2])
  # A fact that earlier rows lack is not shown.
  left = [*whole[:2], {**whole[2], 'plateau_exit_tokens': 5}]
  assert make_text(left) == make_text(whole)


def test_evaluations_on_rows_of_several_lengths_say_which():
  rows = [make_row(step, nsp_accuracy=0.75) for step in (10, 20, 25)]
  phases = {'phases.seq_length': (64, 128), 'phases.steps': (20, 5)}
  text = make_text(rows, **phases)
  assert '| step | tokens a row | MLM loss |' in text
  for row in ('| 10 | 64 | 2.', '| 20 | 64 | 2.', '| 25 | 128 | 2.'):
    assert row in text
  # 42 % of the pairs are random.
  assert 'always the same answer an NSP accuracy of 58.0%.' in text


def test_fields_that_mean_nothing_in_pre_training_are_left_out():
  text = make_text()
  assert 'objective.mask_rate' in text
  assert 'finetuning.' not in text and 'model.bilstm' not in text


def test_the_model_it_started_from_is_named():
  facts = {'path': 'old', 'fingerprint': 'f00d', 'changes': ['nsp: left out']}
  for origin, about in (
    ('old', 'fingerprint=f00d'),
    ('step 3, fingerprint=beef', 'step 3, fingerprint=beef'),
  ):
    start = {'init_from': facts | {'origin': origin}}
    assert (
      f'It started from the parameters of `old` ({about}), with a new '
      'optimizer.\n\n* nsp: left out\n\n'
    ) in make_text([{'kind': 'run', 'step': 0, **start}])
  assert 'It started' not in make_text()


def test_the_card_of_an_earlier_step_shows_no_later_ones(tmp_path):
  (tmp_path / 'config.json').write_text(to_json(make_config()))
  (tmp_path / 'data').mkdir()
  manifest_file.write(str(tmp_path / 'data'), MANIFEST | {'lengths': {}})
  rows = [json.dumps(make_row(step)) for step in (10, 20)]
  (tmp_path / 'metrics.jsonl').write_text('\n'.join([*rows, '']))
  for step, count in ((10, 1), (20, 2)):
    card = model_card.describe_run(str(tmp_path), {'x': np.ones(3)}, step)
    assert card.count('| 2.346 |') == count and '\n3 parameters: ' in card


@pytest.mark.parametrize(
  ('kind', 'nsp', 'words', 'pipeline'),
  [
    ('mlm', True, 'AutoModelForPreTraining', 'fill-mask'),
    ('mlm', False, 'AutoModelForMaskedLM', 'fill-mask'),
    ('ltr', False, 'AutoModelForCausalLM', 'text-generation'),
  ],
)
def test_it_says_how_to_load_each_kind(kind, nsp, words, pipeline):
  text = make_text(**{'objective.kind': kind, 'objective.nsp': nsp})
  assert words in text and f'\npipeline_tag: {pipeline}\n' in text
  assert ('AutoModelForPreTraining' in text) == nsp


def test_it_goes_with_the_model(tmp_path):
  path = str(tmp_path / 'model')
  model = models.make_params(), models.CONFIG, models.TOKENIZER
  hugging_face.export(path, *model, card='# é\n')
  with open(os.path.join(path, 'README.md'), encoding='utf-8') as file:
    assert file.read() == '# é\n'
  hugging_face.export(path, *model)  # one without takes its place
  assert 'README.md' not in os.listdir(path)
