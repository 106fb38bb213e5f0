import ast
import textwrap

import pytest

from bert_jax.corpus import prose

_PROSE = 'The quick brown fox jumps over the lazy dog in the morning.'


def _clean(docstring):
  return prose.clean(textwrap.dedent(docstring))


def test_hard_wrapped_lines_make_one_paragraph():
  assert _clean("""The quick brown fox jumps
    over the lazy dog in the morning.

    And then it is tired of all that.
    """) == [_PROSE, 'And then it is tired of all that.']


@pytest.mark.parametrize(
  'code',
  [
    '>>> the_fox = jump(over, the, dog)\nThe fox is in the air for a while.',
    '```python\nThe fox is in the air and it is for you.\n```',
    '.. math::\n\n    \\sum_{k=0}^n f(x_k) = (1 - q)^{n + 1} / (1 - q)',
    'x : array_like, shape (n, m), optional',
    'fox.jump(over, dog=None, height=1.0, *args, **kwargs)',
    f'A heading may be {_PROSE}\n===========================',
  ],
)
def test_what_is_not_prose_is_left_out(code):
  assert _clean(f'{_PROSE}\n\n{code}\n\n{_PROSE}\n') == [_PROSE, _PROSE]


def test_indented_code_after_double_colons_is_left_out():
  assert _clean("""
    This is how the fox is made to jump over the dog::

      fox = Fox(legs=4, tail=1)  # four legs

      jump(fox, over=dog)

    The fox is prose again after all of it.
    """) == [
    'This is how the fox is made to jump over the dog:',
    'The fox is prose again after all of it.',
  ]


def test_descriptions_stay_where_names_and_types_go():
  assert _clean("""
    Args:
      fox (int, optional): The number of foxes that are to jump.
      dog: The dog that is jumped over by
        all of the foxes.

    Parameters
    ----------
    fox : int
        The number of foxes that are to jump here.

    :param str fox: The name of the fox which is to jump.
    * The fox is also found in lists of many items.
    """) == [
    'The number of foxes that are to jump.',
    'The dog that is jumped over by all of the foxes.',
    'The number of foxes that are to jump here.',
    'The name of the fox which is to jump.',
    'The fox is also found in lists of many items.',
  ]


@pytest.mark.parametrize(
  'docstring, expected',
  [
    (f'.. note::\n   {_PROSE}\n', [_PROSE]),
    (f'.. note:: {_PROSE}\n', [_PROSE]),
    (f'.. versionchanged:: 1.2\n   {_PROSE}\n', [_PROSE]),
    (
      'Use :func:`~os.path.join` and ``None``, or the `manual <http://x>`_, '
      'as is **said** in this text.',
      ['Use os.path.join and None, or the manual, as is said in this text.'],
    ),
    ('Der Fuchs springt sehr gern und oft auf dem Hofe.', []),
  ],
)
def test_notes_stay_markup_and_other_languages_go(docstring, expected):
  assert _clean(docstring) == expected


def test_a_module_gathers_what_is_short_and_parts_with_what_is_long():
  long = ' '.join([_PROSE] * 7)
  found = []
  rest = prose._docstrings(
    ast.parse(f'''
"""{_PROSE}"""

def short():
  """The short one is for the fox in the hole."""
  def inner():
    """The inner one is for nobody to be read."""

class Large:
  """{long}"""
  def method(self):
    """The method is a part of the large class."""
'''),
    found,
  )
  assert rest == [_PROSE, 'The short one is for the fox in the hole.']
  assert found == [[long, 'The method is a part of the large class.']]


@pytest.fixture
def installed(tmp_path, monkeypatch):
  """A tiny Python installation."""
  two = f'{_PROSE} It is the {{}} fox of them all, as far as we know.'

  def write(path, doc):
    path = tmp_path / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(doc, 'utf-8')

  def module(n):
    # Different texts of more than 200 characters.
    text = [two.format(f'{n} and {k}') for k in range(3)]
    return '"""' + '\n\n'.join(text) + '"""\n'

  write('lib/b.py', module('second'))
  write('lib/a.py', module('first'))
  write('lib/broken.py', module('broken') + 'def (')
  write('lib/again.py', module('first'))
  write('lib/test/test_x.py', module('tested'))
  write('lib/pip/_vendor/c.py', module('copied'))
  write('lib/made_pb2.py', module('generated'))
  write('lib/short.py', '"""The fox is too short for a document."""')
  write('site/d.py', module('third'))
  write('site/bert_jax/e.py', module('own'))
  write('lib/pydoc_data/topics.py', f"topics = {{'with': {two * 2!r}}}")
  paths = {'stdlib': 'lib', 'purelib': 'site', 'platlib': 'site'}
  monkeypatch.setattr(
    prose.sysconfig,
    'get_paths',
    lambda: {key: str(tmp_path / value) for key, value in paths.items()},
  )


def test_documents_come_once_and_in_order(installed):
  del installed
  found = [document.paragraphs for document in prose.read_documents()]
  which = ['first', 'second', 'the {} fox', 'third']  # d.py is in site/
  assert len(found) == len(which)
  assert all(w in ' '.join(f) for w, f in zip(which, found, strict=True))


def test_this_installation_has_enough_to_read():
  files = list(prose._files())
  assert len(files) > 300
  found = prose._read(next(f for f in files if f.endswith('/argparse.py')))
  assert any('command-line' in p for texts in found for p in texts)
