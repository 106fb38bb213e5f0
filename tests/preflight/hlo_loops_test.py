"""How often loops run, by the text of their conditions."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from bert_jax.preflight import hlo_text

LOOP = """HloModule jit_step, is_scheduled=true

{fused}%body (x: (s32[])) -> (s32[]) {{
  %x = (s32[]) parameter(0)
}}

%condition (x: (s32[])) -> pred[] {{
  %x = (s32[]) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%x), index=0
  %n = s32[]{{:T(128)}} constant({limit})
  ROOT %lt = pred[]{{:T(512)}} {compare}
}}

ENTRY %main (p: (s32[])) -> (s32[]) {{
  %p = (s32[]) parameter(0)
  ROOT %w = (s32[]) while(%p), condition=%condition, body=%body
}}
"""


def count(compare, limit=0, fused=''):
  """Returns the iterations of a loop whose condition ends in an op."""
  computations, entry = hlo_text.parse(
    LOOP.format(compare=compare, limit=limit, fused=fused)
  )
  return hlo_text.count_trips(computations[entry][-1], computations)


def test_a_loop_that_counts_up_runs_as_often_as_its_limit():
  assert count('compare(%i, %n), direction=LT', limit=7) == 7


# As XLA for CPUs writes it.
FUSED = """%compared (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %gt = pred[] compare({}), direction={}
}}

"""
CALL = 'fusion({}), kind=kLoop, calls=%compared'


def test_a_loop_that_runs_while_a_number_is_positive_counts_as_none():
  assert count('compare(%i, %n), direction=GT') == 0
  assert count('compare(%n, %i), direction=LT') == 0
  for operands, direction in (('%i, %n', 'GT'), ('%n, %i', 'LT')):
    fused = FUSED.format('%a, %b', direction)
    assert count(CALL.format(operands), fused=fused) == 0


@pytest.mark.parametrize(
  'op, fused',
  [
    ('compare(%i, %n), direction=LT', ()),
    ('compare(%n, %i), direction=GT', ()),
    ('compare(%i, %n), direction=NE', ()),
    ('not(%i)', ()),
    (CALL.format('%i, %n'), ('%b, %a', 'GT')),
    (CALL.format('%n, %i'), ('%a, %b', 'GT')),
    (CALL.format('%i, %n'), ('%a, %b', 'LT')),
  ],
)
def test_another_loop_that_compares_with_zero_is_refused(op, fused):
  with pytest.raises(ValueError, match='does not say how often it runs'):
    count(op, fused=FUSED.format(*fused) if fused else '')


def test_a_loop_of_jax_while_a_number_is_positive_is_read():
  def trips(above):
    def f(*start):
      return jax.lax.while_loop(
        lambda c: above(c[0]), lambda c: (c[0] - 3, jnp.tanh(c[1])), start
      )

    lowered = jax.jit(f).lower(jnp.int32(5), jnp.ones((8, 8)))
    computations, _ = hlo_text.parse(lowered.compile().as_text())
    ops = itertools.chain(*computations.values())
    (loop,) = [op for op in ops if op.opcode == 'while']
    return hlo_text.count_trips(loop, computations)

  assert trips(lambda n: n > 0) == 0
  with pytest.raises(ValueError, match='does not say how often it runs'):
    trips(lambda n: n < 0)
