"""HLO text as ops, groups and loops, on lines as compilers write them."""

import itertools

import jax
import jax.numpy as jnp
import pytest

from bert_jax.preflight import hlo_text


def test_bytes_of_a_tuple_are_those_of_its_parts():
  tuple_type = '(bf16[3,5]{1,0:T(8,128)(2,1)}, pred[7], token[], f32[])'
  assert hlo_text.parse_size(tuple_type) == 2 * 15 + 7 + 4
  assert hlo_text.parse_largest(tuple_type) == 30
  assert hlo_text.parse_size('u4[6]') == 3
  assert hlo_text.parse_largest('()') == 0


@pytest.mark.parametrize(
  'groups, devices',
  [
    ('replica_groups={{0,4},{1,5},{2,6},{3,7}}', (0, 4)),
    ('replica_groups=[2,4]<=[8]', (0, 1, 2, 3)),
    ('replica_groups=[4,2]<=[2,4]T(1,0)', (0, 4)),
    ("replica_groups=mesh['data'=4,'model'=2] {'data'}", (0, 2, 4, 6)),
    ("replica_groups=mesh['data'=4,'model'=2] {'model'}", (0, 1)),
    ('replica_groups={}', None),
  ],
)
def test_devices_of_a_group_are_read(groups, devices):
  assert hlo_text.find_group(f', {groups}, to_apply=%sum') == devices
  assert not hlo_text.find_pairs(groups)


def test_pairs_of_a_permutation_are_read():
  pairs = ', source_target_pairs={{0,1},{1,12},{12,0}}, backend_config={}'
  assert hlo_text.find_pairs(pairs) == '0>1,1>12,12>0'


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


# As XLA for CPUs writes it.
FUSED = """%compared (a: s32[], b: s32[]) -> pred[] {{
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %gt = pred[] compare({}), direction={}
}}

"""
CALL = 'fusion({}), kind=kLoop, calls=%compared'


def test_loops_run_to_their_limit_or_while_a_number_is_positive():
  assert count('compare(%i, %n), direction=LT', limit=7) == 7
  # The latter rarely run, and count as none.
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
