"""What errors say."""

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
