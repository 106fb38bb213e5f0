"""Reading scheduled HLO, on texts short enough to add up by hand."""

import jax
import jax.numpy as jnp
import pytest

from bert_jax import hlo

HEAD = 'HloModule jit_step, is_scheduled=true, num_partitions=4\n\n'


def cost(*entry, before=''):
  body = '\n'.join(f'  {line}' for line in entry)
  return hlo.cost(
    f'{HEAD}{before}ENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n'
  )


def cycles(n):
  return f'backend_config={{"window_config":{{"estimated_cycles":"{n}"}}}}'


def test_cycles_of_ops_are_added():
  found = cost(
    '%p = f32[8]{0:T(8,128)(2,1)} parameter(0)',
    f'%a = f32[8]{{0}} fusion(%p), kind=kLoop, calls=%f, {cycles(100)}',
    f'ROOT %b = f32[8]{{0}} tanh(%a), {cycles(23)}',
    before=f"""%f (q: f32[8]) -> f32[8] {{
  %q = f32[8] parameter(0)
  ROOT %e = f32[8] exponential(%q), {cycles(7)}
}}

""",
  )
  assert found.cycles == 123


LOOP = """%body (x: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %x = (s32[], f32[8]) parameter(0)
  %y = f32[8] get-tuple-element(%x), index=1
  %r = u8[8]{{0}} rng-bit-generator(%y), algorithm=rng_default
  %s = f32[8] tanh(%y), {cycles}
  ROOT %t = (s32[], /*index=1*/f32[8]) tuple(%y, %s)
}}

%condition (x: (s32[], f32[8])) -> pred[] {{
  %x = (s32[], f32[8]) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%x), index=0
  %n = s32[]{{:T(128)}} constant(7)
  ROOT %lt = pred[]{{:T(512)}} compare(%i, %n), direction=LT
}}

"""


def test_loop_bodies_count_as_often_as_they_run():
  while_op = (
    '%w = (s32[], f32[8]{0:T(128)S(1)}) while(%p), '
    'condition=%condition, body=%body'
  )
  found = cost(while_op, before=LOOP.format(cycles=cycles(10)))
  assert found.cycles == 70
  assert found.rng_bytes == 56


def test_collectives_are_counted_with_what_a_device_sends():
  found = cost(
    '%a = f32[100]{0} parameter(0)',
    '%b = (f32[100], bf16[50]{0:T(8,128)(2,1)}) all-reduce(%a, %c), '
    "replica_groups=mesh['data'=4,'model'=2] {'data'}, to_apply=%sum",
    '%d = f32[400] all-gather(%a), replica_groups=[1,4]<=[4], dimensions={0}',
    '%e = f32[25] reduce-scatter(%a), replica_groups={{0,1},{2,3}}',
    '%c = bf16[50] parameter(1)',
  )
  assert found.collectives == {
    'all-gather': 1,
    'all-reduce': 1,
    'reduce-scatter': 1,
  }
  # 4 bytes x 100 + 2 x 50; 4 x 400; 4 x 100.
  assert found.collective_bytes == {
    'all-gather': 1600,
    'all-reduce': 500,
    'reduce-scatter': 400,
  }
  # 2 x 3/4 of 500, 3/4 of 1600, 1/2 of 400.
  assert found.sent_bytes == 750 + 1200 + 200


def test_an_asynchronous_collective_is_counted_once():
  found = cost(
    '%a = f32[10]{0} parameter(0)',
    '%b = (f32[10], f32[40]) all-gather-start(%a), dimensions={0}',
    '%c = f32[40]{0} all-gather-done(%b)',
  )
  assert found.collectives == {'all-gather': 1}
  assert found.collective_bytes == {'all-gather': 160}
  assert found.sent_bytes == 120  # num_partitions=4: 3/4


def test_a_sum_of_which_a_part_is_kept_is_a_reduce_scatter():
  found = cost(
    '%a = f32[40]{0} parameter(0)',
    '%b = f32[10]{0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter.1',
    before="""%all-reduce-scatter.1 (q: f32[40]) -> f32[10] {
  %q = f32[40] parameter(0)
  %s = f32[40] all-reduce(%q), replica_groups={{0,1,2,3}}, to_apply=%sum
  ROOT %d = f32[10] dynamic-slice(%s), dynamic_slice_sizes={10}
}

""",
  )
  assert found.collectives == {'reduce-scatter': 1}
  assert found.sent_bytes == 120


def test_kernels_are_told_from_notes_to_the_compiler():
  found = cost(
    '%a = bf16[16]{0} parameter(0)',
    '%b = bf16[16] custom-call(%a), custom_call_target="tpu_custom_call"',
    '%c = s32[8] custom-call(), custom_call_target="Note"',
    '%d = s32[8] custom-call(), custom_call_target="Note"',
  )
  assert found.custom_calls == {'Note': 2, 'tpu_custom_call': 1}
  assert (found.kernels, found.kernel_bytes) == (1, 64)


def test_costs_lie_on_a_line_over_the_layers():
  two = hlo.Cost(cycles=100, collectives={'all-reduce': 3})
  four = hlo.Cost(cycles=160, collectives={'all-reduce': 3, 'all-gather': 4})
  found = hlo.extrapolate(two, four, (2, 4, 12))
  assert found.cycles == 400
  assert found.collectives == {'all-reduce': 3, 'all-gather': 20}


def test_programs_of_jax_are_read():
  def f(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, length=3)[0]

  text = jax.jit(f).lower(jnp.ones((8, 8))).compile().as_text()
  assert hlo.cost(text).cycles == 0  # CPU programs have none


def test_other_text_is_refused():
  with pytest.raises(ValueError, match='no HLO module'):
    hlo.cost('hello')
