"""What errors say, and what a program ends with."""

import errno

import pytest

from bert_jax import errors


@pytest.mark.parametrize(
  ('error', 'line'),
  [
    (ValueError('it is wrong.\n  in line 7'), 'it is wrong'),
    (RuntimeError('\n\nno room\r\nat all'), 'no room'),
    (EOFError(), 'EOFError'),
    (KeyError(' '), "' '"),
    (ValueError('x' * 300), 'x' * 300),
    (ValueError('x' * 301), 'x' * 300 + '...'),
  ],
)
def test_the_first_line_of_an_error_fits_into_a_message(error, line):
  assert errors.first_line(error) == line


def test_a_long_list_says_how_many_it_leaves_out():
  assert errors.listing([]) == 'none'
  assert errors.listing(['a', 'b']) == 'a, b'
  assert errors.listing(list('abcdefgh')) == 'a, b, c, d, e, f and 2 more'


def test_changes_are_named_in_the_order_of_the_new_values():
  old = {'a': 1, 'b': [2], 'c': 3, 'd': {'x': 5, 'y': 6}}
  new = {'e': 4, 'd': {'x': 5, 'y': 7}, 'b': [3], 'a': 1}
  assert errors.find_changes(old, new) == [
    'e was None, is 4',
    'd.y was 6, is 7',
    'b was [2], is [3]',
    'c was 3, is None',
  ]
  assert errors.find_changes(old, old) == []


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (errors.UserError('a field is wrong'), 1),
    (KeyError('x'), 70),
    (FileNotFoundError(errno.ENOENT, 'No such file'), 70),
    (RuntimeError('UNAVAILABLE: TPU initialization failed'), 70),
    (errors.Interrupted(15), 143),
  ],
)
def test_the_exit_code_tells_mistakes_from_all_else(error, code):
  assert errors.get_exit_code(error) == code


@pytest.mark.parametrize(
  ('error', 'kinds', 'kind', 'said'),
  [
    (
      FileNotFoundError(errno.ENOENT, 'No such file', 'x'),
      *([], errors.UserError, 'cannot read x: No such file; use y.'),
    ),
    (
      ValueError('at line 3.\nand more'),
      *([ValueError], errors.UserError, 'cannot read x: at line 3; use y.'),
    ),
    # Not the user's mistake, and the path may be right.
    (
      OSError(errno.EIO, 'Input'),
      [],
      OSError,
      '[Errno 5] cannot read x: Input',
    ),
  ],
)
def test_an_error_of_a_path_or_of_another_kind_is_the_users(
  error, kinds, kind, said
):
  with pytest.raises(kind) as caught:
    with errors.explaining('cannot read x', 'use y.', *kinds):
      raise error
  assert str(caught.value) == said and caught.value.__cause__ is error


@pytest.mark.parametrize('error', [errors.UserError('mine'), KeyError('x')])
def test_users_errors_and_other_kinds_pass(error):
  with pytest.raises(type(error)) as caught:
    with errors.explaining('cannot read x', '', ValueError):
      raise error
  assert caught.value is error


def test_a_place_is_put_before_a_users_error_and_no_other():
  with pytest.raises(errors.UserError, match='^config.json: is wrong$'):
    with errors.within('config.json'):
      raise errors.UserError('is wrong')
  with pytest.raises(ValueError, match='^is wrong$'):
    with errors.within('config.json'):
      raise ValueError('is wrong')
