import collections

import pytest

from bert_jax.data import accents


def _seen(*texts):
  seen = collections.Counter()
  for text in texts:
    accents.count_scripts(text, seen)
  return seen


@pytest.mark.parametrize(
  'text, strip',
  [
    ('The man went.', True),
    ('Élan, Größe, être, mañana', True),
    ('Ο ΣΩΚΡΑΤΗΣ είπε', True),
    ('東京和北京', True),  # ideographs have no marks
    ('한국어 문장', False),
    ('ภาษาไทย', False),
    ('שָׁלוֹם', False),
    ('東京でカード', False),
  ],
)
def test_the_script_decides(text, strip):
  assert accents.judge_text('en', _seen(text)).strip == strip


def test_the_language_decides_before_the_script():
  assert not accents.judge_text('ko', _seen('plain ASCII')).strip
  assert not accents.judge_text('KO', _seen('plain ASCII')).strip
  assert not accents.judge_text('en,ko', _seen('plain ASCII')).strip
  for language in ('en,fr', 'en', 'de', 'el', 'ru', 'vi', 'zh', ''):
    assert accents.judge_text(language, _seen('plain ASCII')).strip


def test_what_is_known_without_text():
  def decide(*args):
    decided = accents.decide_without_text(*args)
    return decided and decided.strip

  korean, jamo = ['[PAD]', '한', '##국'], ['[PAD]', '\u1112', '##\u1161']
  assert decide(None, True, None) is None
  assert decide(None, True, jamo) is True
  assert decide(None, True, korean) is False
  assert decide(True, True, korean) is True
  assert decide(False, True, jamo) is False
  assert decide(None, False, jamo) is False  # cased
