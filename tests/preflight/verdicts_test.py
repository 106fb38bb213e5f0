"""One result for each kind of program, whatever the lengths of its batches."""

from bert_jax.preflight import verdicts
from bert_jax.train import programs


def make(length, phase=0, name=programs.TRAIN):
  return programs.Program(name, None, (), phase=phase, length=length)


def test_a_failure_at_any_length_is_that_of_the_program():
  found = verdicts.judge(
    [(make(128), None), (make(64), 'it is x'), (make(32), 'it is y')]
  )
  assert found == [
    {
      'name': 'training step',
      'phase': 0,
      'ok': False,
      'reason': 'at length 64 it is x',
    }
  ]


def test_one_length_is_not_named():
  start = make(None, None, programs.VOTE)
  found = verdicts.judge(
    [(start, None), (make(128), None), (make(512, 1), 'it is x')]
  )
  assert [(x['phase'], x['ok'], x['reason']) for x in found] == [
    (None, True, None),
    (0, True, None),
    (1, False, 'it is x'),
  ]
