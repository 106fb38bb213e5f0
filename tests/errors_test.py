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
