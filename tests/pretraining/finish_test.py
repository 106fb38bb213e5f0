"""What a run ends with: examples of its text, and the README.md of its export."""

import json
import shlex

import numpy as np
import pytest

from bert_jax.config import recipes, to_json
from bert_jax.data import manifest_file
from bert_jax.pretraining import finish, pretrain
from bert_jax.tokenization import tokenizer
from tests import models
from tests.data import made

MANIFEST = {
  'version': '9.8.7',
  'format': manifest_file.FORMAT,
  'recipe': {
    'inputs': ['/home/ann/books/*', '/home/ann/b.txt'],
    'weights': None,
    'language': 'ko',
    'vocab_size': 11,
    'lowercase': True,
    'strip_accents': True,
    'vocab': '/home/ann/vocab.txt',
  },
  'inputs': [
    {
      'input': f'/home/ann/{name}',
      'files': [{}],
      'documents': 1200,
      'text_bytes': 34567,
      'train': {'tokens': 60000},
      'heldout': {'tokens': 600, 'parts': 9},
    }
    for name in ('books/*', 'b.txt')
  ],
  'documents': {'train': 1100, 'heldout': 100, 'bytes': 34567},
  'accents': 'kept',
  'vocab_sha256': 'f00d',
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


@pytest.fixture
def make_text(tmp_path):
  """Returns (rows of the log, fields, step) -> the card of a run."""

  def make(rows=(), step=10_000, **changes):
    c = recipes.pretraining('tiny')
    c.phases.seq_length = (128, 128)
    c.update_from_flattened_dict(changes)
    (tmp_path / 'config.json').write_text(to_json(c))
    (tmp_path / 'data').mkdir(exist_ok=True)
    tokenizer.write_vocab(
      models.TOKENIZER.vocab, str(tmp_path / 'data/vocab.txt')
    )
    manifest_file.write(str(tmp_path / 'data'), MANIFEST | {'lengths': {}})
    rows = ''.join(json.dumps(row) + '\n' for row in rows)
    (tmp_path / 'metrics.jsonl').write_text(rows)
    return finish.describe_run(str(tmp_path), {'x': np.ones(4386)}, step)

  return make


@pytest.mark.parametrize(
  ('text', 'shown', 'hidden'),
  [
    ('the fish swam in the river .', 'the fish swam in the', 'swam'),
    ('it is un ##aff ##able to him .', 'it is un ##aff ##able', 'is'),
    ('##able to him and under ##stand ##ing', 'to him and', 'and'),
    ('a dog barked loud ##ly', 'a dog barked loud ##ly', 'barked'),  # a cut end
    ('ภาษา ##ไทย และ', 'ภาษา ##ไทย และ', 'ภาษา ##ไทย'),
    ('an ##ti ##que', 'an ##ti ##que', 'an ##ti ##que'),
    (
      'un ##der ##stand ##able ##ness ##es',
      'un ##der ##stand ##able ##ness',
      '',
    ),
  ],
)
def test_the_word_in_the_middle_of_whole_ones_is_hidden(
  monkeypatch, text, shown, hidden
):
  monkeypatch.setattr(finish, '_PIECES', 5)
  tokens = text.split()
  goes_on = [x.startswith('##') for x in tokens]
  begin, start, end, last = finish._hide_word(tokens, goes_on)
  assert ' '.join(tokens[begin:last]) == shown
  assert ' '.join(tokens[start:end]) == (hidden or shown)


@pytest.mark.parametrize(
  'sentence',
  [
    '나라의 [MASK] 중국과 달라',
    'he didn \' t [MASK] "why" ; $HOME `ls` !',
    '- dashes [MASK] like flags',
    '* [MASK] ?',
  ],
)
def test_the_command_to_try_holds_a_sentence_of_the_text(sentence):
  unknown = 'one [UNK] word and a [MASK]'
  given = '/runs/a b', '/runs/a b/export', [unknown, sentence]
  first, _, main, _ = finish._list_next(*given, own=True)
  *command, last = shlex.split(first)
  assert command[:4] == [
    *('python', '-m', 'bert_jax.fill_mask', '--model=/runs/a b/export')
  ]
  assert last == sentence
  assert (command[-1] == '--') == sentence.startswith('-')
  assert shlex.split(main)[3:-1] == [
    '--config=configs/classify.py',
    '--config.init_from=/runs/a b',
    '--config.data.input=train=FILE',
  ]


def write_heldout(tmp_path):
  """Writes prepared data of three held-out rows."""
  rows = [[([5, 6, 7], [9], False)]] * 3  # the cat dog, é
  made.write(tmp_path, 'heldout', 9, [rows], len(models.VOCAB))
  config = recipes.pretraining('tiny')
  config.phases.seq_length, config.data.pack = (9,), 1
  return config, str(tmp_path)


def test_the_examples_are_held_out_rows(tmp_path):
  _, data = write_heldout(tmp_path)
  examples = finish.choose_examples(data, 9, models.TOKENIZER, 3)
  assert examples == [('the [MASK] dog', 'cat')] * 3


@pytest.mark.parametrize('rows', ['full_sentences', 'doc_sentences'])
def test_the_examples_of_rows_of_sentences_begin_a_row(sentences, rows):
  words = manifest_file.load_tokenizer(sentences[rows])
  for text, hidden in finish.choose_examples(sentences[rows], 32, words, 3):
    assert text.count('[MASK]') == 1 and len(text.split()) > 5
    assert '[' not in hidden + text.replace('[MASK]', '')


def test_a_card_says_how_long_the_rows_were(make_text):
  rows = [{'kind': 'run', 'step': 0}, make_row(1000)]
  text = make_text(rows)
  assert '| tokens of a row in training, at most | 128 |' in text
  assert '| longer texts | much worse' in text
  modern = {'model.body': 'modern', **recipes.BODIES['modern']}
  modern['model.attention_init'] = 'wide'
  text = make_text(rows, **modern)
  assert '| longer texts | untried' in text and 'ModernBERT of 2' in text
  assert '\ntags:\n- modernbert\n---' in text
  same = make_text(rows, **{'model.max_positions': 128})
  assert 'longer texts' not in same
  rows[0]['init_from'] = {
    'path': 'x',
    'origin': 'y',
    'changes': [],
    'trained_length': 512,
  }
  assert 'longer texts' not in make_text(rows)


def test_figures_come_from_the_manifest_and_the_log(make_text):
  more = {
    f'{name}/{x}': value
    for x, value in (('/home/ann/books/*', 0.25), ('/home/ann/b.txt', 0.5))
    for name in ('mlm_loss', 'mlm_accuracy', 'nsp_accuracy')
  }
  more |= pretrain.derive(more) | {'nsp_accuracy': 0.75}
  rows = [{'kind': 'run', 'step': 0}, make_row(10), make_row(1000, **more)]
  text = make_text(rows)
  for words in (
    '| parameters | 4,386 |',
    '| version | 9.8.7 |',
    '| `books/*` | 1 | 1 | 1,200 | 34,567 | 60,000 | 600 | 9 |',
    '| unknown_share | 1.23% |',
    '| documents, or parts, held out | 100 |',
    '| sequences, at most | 77 |',
    '|  | mlm_loss | mlm_perplexity | mlm_accuracy | nsp_accuracy |\n',
    '| step 1,000 | 2.346 | 10.4 | 45.7% | 75.0% |',
    '| `books/*` | 0.250 | 1.3 | 25.0% | 25.0% |\n| `b.txt` | 0.500 |',
    # 42 % of the pairs are random.
    '| nsp_accuracy of a constant | 58.0% |',
    '| mlm_loss of word frequencies | 6.432 |',
    '| optimizer.learning_rate | `0.0001` |',
    '| phases.steps | `[900000, 100000]` |',
    '| tokens of a row in training, at most | 128 |',
    '\nlanguage: ko\n',
    '# FILL IN the licence',
    '\nlicense: unknown\n',
  ):
    assert words in text
  assert 'python-docs' not in text and 'checkpoint.' not in text
  assert 'step 10 ' not in text and '## Held-out text' not in make_text()
  # That of an earlier step shows no later ones.
  assert '| step 10 | 2.346 |' in make_text(rows, 10)


def test_no_path_of_this_machine_is_published(make_text):
  facts = {'path': '/home/ann/old', 'origin': '/home/ann/old'}
  facts |= {'fingerprint': 'f00d', 'changes': []}
  more = {'mlm_loss/gs://ann/c': 1, 'mlm_perplexity/gs://ann/c': 1}
  more['mlm_accuracy/gs://ann/c'] = 1
  run = {'kind': 'run', 'step': 0, 'init_from': facts}
  text = make_text([run, make_row(10, **more)], init_from='/home/ann/old')
  assert 'ann' not in text
  assert '| init_from | `"old"` |' in text
  assert '| data.inputs | `["books/*", "b.txt"]` |' in text
  assert '| data.vocab | `"vocab.txt"` |' in text


def test_the_model_it_started_from_is_named(make_text):
  facts = {'path': 'old', 'fingerprint': 'f00d', 'changes': ['nsp: left out']}
  for origin, about in (
    ('old', 'fingerprint=f00d'),
    ('step 3, fingerprint=beef', 'step 3, fingerprint=beef'),
  ):
    start = {'init_from': facts | {'origin': origin}}
    text = make_text([{'kind': 'run', 'step': 0, **start}])
    line = f'| started from | `old` ({about}), a new optimizer; nsp: left out |'
    assert line in text
  assert '| started' not in make_text()


@pytest.mark.parametrize(
  ('kind', 'nsp', 'words', 'pipeline'),
  [
    ('mlm', True, 'AutoModelForPreTraining', 'fill-mask'),
    ('mlm', False, 'AutoModelForMaskedLM', 'fill-mask'),
    ('ltr', False, 'AutoModelForCausalLM', 'text-generation'),
  ],
)
def test_it_says_how_to_load_each_kind(make_text, kind, nsp, words, pipeline):
  text = make_text(**{'objective.kind': kind, 'objective.nsp': nsp})
  assert words in text and f'\npipeline_tag: {pipeline}\n' in text
  assert ('AutoModelForPreTraining' in text) == nsp
