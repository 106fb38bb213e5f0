"""What errors say, and what a program ends with."""

import errno
import pickle

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


def raised_from(cause: Exception) -> errors.UserError:
  error = errors.UserError('x cannot be read.')
  error.__cause__ = cause
  return error


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (errors.UserError('a field is wrong'), 1),
    (raised_from(OSError(errno.ENOSPC, 'No space left on device')), 1),
    (raised_from(FileNotFoundError(errno.ENOENT, 'No such file')), 1),
    (KeyError('x'), 70),
    (OSError('no reason'), 70),
    (FileNotFoundError(errno.ENOENT, 'No such file'), 70),
    (MemoryError(), 70),
    (RuntimeError('INTERNAL: the core halted'), 70),
    (RuntimeError('RESOURCE_EXHAUSTED: out of memory'), 70),
    (OSError(errno.EIO, 'Input/output error'), 75),
    (OSError(errno.ESTALE, 'Stale file handle'), 75),
    (ConnectionResetError(), 75),
    (TimeoutError(), 75),
    (raised_from(OSError(errno.EIO, 'Input/output error')), 75),
    (raised_from(ValueError("UNKNOWN: x [os_error_code='5' y]")), 75),
    (raised_from(ValueError("UNKNOWN: x [os_error_code='2' y]")), 1),
    (RuntimeError('UNAVAILABLE: TPU initialization failed'), 75),
    (RuntimeError("'tpu': ABORTED: The TPU is already in use by 7"), 75),
    (RuntimeError('open(/dev/vfio/0): Device or resource busy'), 75),
    (RuntimeError('all CUDA-capable devices are busy or unavailable'), 75),
    (RuntimeError('DEADLINE_EXCEEDED: Barrier timed out'), 75),
    (errors.UserError('UNAVAILABLE: is a word of ours'), 1),
    (errors.Interrupted(15), 143),
  ],
)
def test_the_exit_code_tells_mistakes_bugs_and_what_may_pass(error, code):
  assert errors.get_exit_code(error) == code
  if isinstance(error, errors.UserError):
    # As a worker process sends it, which loses its cause.
    assert errors.get_exit_code(pickle.loads(pickle.dumps(error))) == code


@pytest.mark.parametrize(
  ('error', 'kinds', 'reason'),
  [
    (OSError(errno.EIO, 'Input/output error'), [], 'Input/output error'),
    (OSError('odd.'), [], 'odd'),
    (ValueError('at line 3.\nand more'), [ValueError], 'at line 3'),
  ],
)
def test_an_error_of_the_disk_or_of_another_kind_is_explained(
  error, kinds, reason
):
  with pytest.raises(errors.UserError) as caught:
    with errors.explaining('cannot read x', 'use y.', *kinds):
      raise error
  assert str(caught.value) == f'cannot read x: {reason}; use y.'
  assert caught.value.__cause__ is error


@pytest.mark.parametrize('kinds', [[], [ValueError]])
@pytest.mark.parametrize('error', [errors.UserError('mine'), KeyError('x')])
def test_users_errors_and_other_kinds_pass(error, kinds):
  with pytest.raises(type(error)) as caught:
    with errors.explaining('cannot read x', '', *kinds):
      raise error
  assert caught.value is error


def test_a_place_is_put_before_a_users_error_and_no_other():
  with pytest.raises(errors.UserError, match='^config.json: is wrong$'):
    with errors.within('config.json'):
      raise errors.UserError('is wrong')
  with pytest.raises(ValueError, match='^is wrong$'):
    with errors.within('config.json'):
      raise ValueError('is wrong')
