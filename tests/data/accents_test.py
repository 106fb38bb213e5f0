import pytest

from bert_jax.data import accents


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
    ('Seoul (서울) is a city. ' * 4, False),
    ('Seoul is a city. ' * 40 + '(서울)', True),
  ],
)
def test_the_script_decides(text, strip):
  assert accents.decide(None, True, (), [[text]])[0] == strip


def test_more_is_read_only_if_little_was():
  long, korean = ['a' * 2_000_000], ['한국어']
  assert accents.decide(None, True, (), [['a'], korean])[0] is False
  assert accents.decide(None, True, (), [long, korean])[0] is True


def test_what_is_known_without_text():
  korean, jamo = ['[PAD]', '한', '##국'], ['[PAD]', '\u1112', '##\u1161']
  for asked, lowercase, vocab, strip in [
    (None, True, jamo, True),
    (None, True, korean, False),
    (True, True, korean, True),
    (False, True, jamo, False),
    (None, False, jamo, False),  # cased
  ]:
    assert accents.decide(asked, lowercase, vocab)[0] is strip
