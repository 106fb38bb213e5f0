"""Reading scheduled HLO, on texts short enough to add up by hand."""

import functools

from bert_jax.preflight import hlo_cost

HEAD = 'HloModule jit_step, is_scheduled=true, num_partitions=4\n\n'


def cost_of(function, *entry, before=''):
  body = '\n'.join(f'  {line}' for line in entry)
  return function(
    f'{HEAD}{before}ENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n'
  )


cost = functools.partial(cost_of, hlo_cost.count_cost)


def cycles(n):
  return f'backend_config={{"window_config":{{"estimated_cycles":"{n}"}}}}'


def test_cycles_of_ops_are_added_and_those_within_a_fusion_are_not():
  found = cost(
    '%p = f32[8]{0:T(8,128)(2,1)} parameter(0)',
    f'%a = f32[8]{{0}} fusion(%p), kind=kOutput, calls=%f, {cycles(100)}',
    f'ROOT %b = f32[8] tanh(%a), {cycles(23)}',
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
  assert sum(found.group_bytes.values()) == 750 + 1200 + 200
  assert found.group_bytes == {'0,1': 200, '0,1,2,3': 1200, '0,2,4,6': 750}


def test_an_asynchronous_collective_is_counted_once():
  found = cost(
    '%a = f32[10]{0} parameter(0)',
    '%b = (f32[10], f32[40]) all-gather-start(%a), dimensions={0}',
    '%c = f32[40]{0} all-gather-done(%b)',
  )
  assert found.collectives == {'all-gather': 1}
  assert found.collective_bytes == {'all-gather': 160}
  assert sum(found.group_bytes.values()) == 120  # num_partitions=4: 3/4


def test_the_schedule_says_where_collectives_start_and_are_awaited():
  mark = 'custom-call(%g), custom_call_target="AsyncCollective'
  gather = '%g = f32[40] all-gather(%q), frontend_attributes={chain_id="7"}'
  found = cost_of(
    hlo_cost.list_schedule,
    '%a = f32[10]{0} parameter(0)',
    '%b = (f32[10], f32[10]) collective-permute-start(%a), '
    'source_target_pairs={{0,1},{1,0}}',
    f'%c = f32[40] fusion(%a), calls=%start, {cycles(5)}',
    '%d = f32[10]{0} collective-permute-done(%b)',
    f'%e = f32[40] fusion(%c), calls=%done, {cycles(6)}',
    before=''.join(
      f"""%{name.lower()} (q: f32[10]) -> f32[40] {{
  %q = f32[10]{{0}} parameter(0)
  {gather}
  ROOT %r = f32[40] {mark}{name}"
}}

"""
      for name in ('Start', 'Done')
    ),
  )
  assert [(x.starts, x.awaits, x.cost.cycles) for x in found] == [
    ('b', '', 0),
    ('7', '', 5),
    ('', 'b', 0),
    ('', '7', 6),
  ]
  sent = [x.cost.group_bytes for x in found]
  assert sent == [{'0>1,1>0': 40}, {'0,1,2,3': 120}, {}, {}]


def test_what_another_core_of_the_chip_does_is_counted():
  # TPU7x has SparseCores gather, scatter and send.
  found = cost(
    '%a = f32[10]{0} parameter(0)',
    '%b = ((f32[10], token[]), f32[40]) call-start(%a, %t), '
    'async_execution_thread="sparsecore", to_apply=%called',
    '%c = f32[40]{0} call-done(%b)',
    before="""%called (q: f32[10], t: token[]) -> f32[40] {
  %t = token[] parameter(1)
  %q = f32[10]{0} parameter(0)
  %r = f32[10]{0} negate(%q), backend_config={"estimated_cycles":"99999999"}
  ROOT %g = f32[40]{0} all-gather(%r), replica_groups={{0,1,2,3}}
}, execution_thread="sparsecore"

""",
  )
  assert found.collectives == {'all-gather': 1}
  assert sum(found.group_bytes.values()) == 120
  assert found.cycles == 0


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
  assert sum(found.group_bytes.values()) == 120


def test_kernels_say_what_they_do_and_notes_to_the_compiler_do_nothing():
  target = 'custom_call_target="tpu_custom_call"'
  said = (
    f'{target}, backend_config={{"cost_estimate":'
    '{"flops":"70","transcendentals":"3","bytes_accessed":"500"}}'
  )
  found = cost(
    '%a = bf16[16]{0} parameter(0)',
    f'%b = bf16[16] custom-call(%a), {target}',
    f'%k.1 = bf16[16]{{0}} custom-call(%a, %a), {said}',
    f'%k.2 = bf16[16]{{0}} custom-call(%a, %a), {said}',
    f'%k.3 = (bf16[8]{{0}}, f32[2]) custom-call(%a, %a), {said}',
    '%c = s32[8] custom-call(), custom_call_target="Note"',
  )
  b, k, other = 'b bf16[16]', 'k bf16[16]', 'k bf16[8]'
  assert found.kernels == {b: 1, k: 2, other: 1}
  assert found.kernel_flops == {b: 0, k: 140, other: 70}
  assert found.kernel_bytes == {b: 64, k: 1000, other: 500}


def test_a_collective_behind_several_fusions_is_counted_once():
  gather = (
    'all-gather(%q), replica_groups={{0,1,2,3}}, '
    'frontend_attributes={chain_id="0"}'
  )
  found = cost(
    '%a = f32[10]{0} parameter(0)',
    '%s = (f32[10], f32[40]) fusion(%a), kind=kCustom, calls=%start',
    f'%m = f32[40] fusion(%a), kind=kCustom, calls=%next, {cycles(5)}',
    before=f"""%start (q: f32[10]) -> (f32[10], f32[40]) {{
  %q = f32[10] parameter(0)
  %g = f32[40] {gather}
  ROOT %c = (f32[10], f32[40]) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}}

%next (q: f32[10]) -> f32[40] {{
  %q = f32[10] parameter(0)
  ROOT %g = f32[40] {gather}
}}

""",
  )
  assert found.collectives == {'all-gather': 1}
  assert sum(found.group_bytes.values()) == 120


MOVES = """%look (q: f32[100,8], i: s32[5]) -> f32[5,8] {
  %q = f32[100,8] parameter(0)
  %i = s32[5] parameter(1)
  ROOT %g = f32[5,8] gather(%q, %i), offset_dims={1}
}

%put (q: f32[100,8], i: s32[5], u: f32[5,8]) -> f32[100,8] {
  %q = f32[100,8] parameter(0)
  %i = s32[5] parameter(1)
  %u = f32[5,8] parameter(2)
  ROOT %s = f32[100,8] scatter(%q, %i, %u), to_apply=%sum
}

"""


def test_gathers_and_scatters_move_the_rows_that_they_touch():
  found = cost(
    '%t = f32[100,8] parameter(0)',
    '%i = s32[5] parameter(1)',
    '%u = f32[5,8] fusion(%t, %i), kind=kCustom, calls=%look',
    '%b = f32[100,8] fusion(%t, %i, %u), kind=kCustom, calls=%put, '
    'backend_config={"aliasing_operands":{"lists":[{"indices":["0","3"]}]}}',
    before=MOVES,
  )
  # 5 rows of 32 bytes: out of the table and into the result; then the rows to
  # add, and those of the table in and out.
  assert found.moved_bytes == 2 * 160 + 3 * 160


def test_a_scatter_into_a_new_table_makes_all_of_it():
  found = cost(
    '%t = f32[100,8] parameter(0)',
    '%b = f32[100,8] fusion(%t, %i, %u), kind=kCustom, calls=%put',
    # A gather in a fusion with cycles is in these.
    f'%u = f32[5,8] fusion(%t, %i), kind=kCustom, calls=%look, {cycles(9)}',
    before=MOVES,
  )
  assert (found.cycles, found.moved_bytes) == (9, 3 * 160 + 3200)


def test_costs_lie_on_a_line_over_the_layers():
  two = hlo_cost.Cost(cycles=100, collectives={'all-reduce': 3})
  four = hlo_cost.Cost(
    cycles=160, collectives={'all-reduce': 3, 'all-gather': 4}
  )
  found = hlo_cost.extrapolate(two, four, (2, 4, 12))
  assert found.cycles == 400
  assert found.collectives == {'all-reduce': 3, 'all-gather': 20}
