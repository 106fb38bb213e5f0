"""What the end of a run shows of the user's own text."""

import shlex
import signal

import pytest

from bert_jax import errors
from bert_jax.config import recipes
from bert_jax.pretraining import finish
from tests import models
from tests.data import made

EVALUATED = '{"kind": "eval", "step": 9, "mlm_loss": 2.5}\n'


@pytest.mark.parametrize(
  ('text', 'hidden'),
  [
    ('the fish swam in the river .', 'swam'),
    ('it is un ##aff ##able to him .', 'him'),
    ('a dog barked loud ##ly', 'barked'),  # the end may be cut off
    ('나라 ##의 말이 중국 ##과 달라 서로', '달라'),
    ('ภาษา ##ไทย และ อื่น ##ๆ', 'และ'),
    ('an ##ti ##que', 'an ##ti ##que'),
    ('##ly 1 ##2 , 3 ##4 .', ','),
    ('un ##aff ##able to', 'un ##aff ##able'),
  ],
)
def test_the_word_in_the_middle_of_the_readable_ones_is_hidden(text, hidden):
  tokens = text.split()
  start, end = finish._choose_word(tokens)
  assert ' '.join(tokens[start:end]) == hidden


@pytest.mark.parametrize(
  ('text', 'shown'),
  [
    ('the fish swam', 'the fish swam'),
    ('##able to him and the', 'to him and the'),  # it begins within a word
    ('. " the fish', 'the fish'),
    ('a b c d e', 'a b c d'),
    ('a b c ##d ##e', 'a b'),
    ('##able to him and under ##stand', 'to him and'),
    ('un ##der ##stand ##able ##ness', 'un ##der ##stand ##able'),
  ],
)
def test_the_sentence_has_whole_words(monkeypatch, text, shown):
  monkeypatch.setattr(finish, '_PIECES', 4)
  tokens = text.split()
  assert ' '.join(tokens[slice(*finish._choose_part(tokens))]) == shown


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


def test_an_interruption_of_the_examples_leaves_the_export(
  tmp_path, monkeypatch
):
  config, data = write_heldout(tmp_path)
  config.data.vocab_size = len(models.VOCAB)
  (tmp_path / 'metrics.jsonl').write_text(EVALUATED)
  exported = []

  def interrupt(*args):
    raise errors.Interrupted(signal.SIGTERM)

  monkeypatch.setattr(
    finish.manifest_file, 'load_tokenizer', lambda *args: models.TOKENIZER
  )
  monkeypatch.setattr(finish.model_card, 'describe_run', lambda *args: None)
  monkeypatch.setattr(
    finish.hugging_face, 'export', lambda path, *_, **__: exported.append(path)
  )
  monkeypatch.setattr(finish.fill, 'fill', interrupt)
  with pytest.raises(errors.Interrupted):
    finish.finish(config, data, str(tmp_path), models.make_params(), {}, 9)
  assert exported == [f'{tmp_path}/export']


def test_the_examples_are_held_out_rows(tmp_path):
  _, data = write_heldout(tmp_path)
  examples = finish.choose_examples(data, 9, models.TOKENIZER, 3)
  assert examples == [('the [MASK] dog', 'cat')] * 3


def test_without_a_good_sentence_there_is_a_bad_one_or_no_command():
  def first(exported, sentences):
    return finish._list_next('my run', exported, sentences, own=False)[0]

  sentences = ["can ' t ye [MASK] ?", 'he [MASK] in .', 'and [MASK]']
  assert first('x', sentences).endswith(" 'he [MASK] in .'")  # no quotes in it
  assert first('x', ['[UNK] [MASK]']).endswith(" '[UNK] [MASK]'")
  for given in (('x', []), (None, ['a [MASK]'])):
    assert first(*given).endswith("report --workdir='my run'")
