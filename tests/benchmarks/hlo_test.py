"""Reading scheduled HLO, on texts short enough to add up by hand."""

import doctest

import hlo
import pytest

HEAD = 'HloModule jit_step, is_scheduled=true, num_partitions=4\n\n'


def read(*entry, before=''):
  body = '\n'.join(f'  {line}' for line in entry)
  return hlo.read(
    f'{HEAD}{before}ENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n'
  )


def cycles(n):
  return f'backend_config={{"window_config":{{"estimated_cycles":"{n}"}}}}'


def test_bytes_of_a_tuple_are_those_of_its_parts():
  assert not doctest.testmod(hlo).failed
  assert hlo.count_bytes('u4[6]') == 3 and hlo.count_bytes('()') == 0


def test_cycles_of_ops_are_added_and_those_within_a_fusion_are_not():
  found = read(
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
  %s = f32[8] tanh(%y), {cycles}
  ROOT %t = (s32[], /*index=1*/f32[8]) tuple(%y, %s)
}}

%condition (x: (s32[], f32[8])) -> pred[] {{
  %x = (s32[], f32[8]) parameter(0)
  %i = s32[]{{:T(128)}} get-tuple-element(%x), index=0
  %n = {limit}
  ROOT %lt = pred[]{{:T(512)}} compare(%i, %n), direction=LT
}}

"""


@pytest.mark.parametrize('limit, total', [(7, 70), (0, 0)])
def test_loop_bodies_count_as_often_as_they_run(limit, total):
  while_op = (
    '%w = (s32[], f32[8]{0:T(128)S(1)}) while(%p), '
    'condition=%condition, body=%body'
  )
  constant = f's32[]{{:T(128)}} constant({limit})'
  before = LOOP.format(cycles=cycles(10), limit=constant)
  assert read(while_op, before=before).cycles == total
  unknown = LOOP.format(cycles=cycles(10), limit='s32[] parameter(1)')
  with pytest.raises(ValueError, match='does not say how often'):
    read(while_op, before=unknown)


def test_collectives_are_counted_with_the_bytes_of_whole_arrays():
  found = read(
    '%a = f32[100]{0} parameter(0)',
    '%b = (f32[100], bf16[50]{0:T(8,128)(2,1)}) all-reduce(%a, %c), '
    'to_apply=%sum',
    '%d = f32[400] all-gather(%a), dimensions={0}',
    '%e = f32[25] reduce-scatter(%a)',
    '%c = bf16[50] parameter(1)',
  )
  kinds = 'all-gather', 'all-reduce', 'reduce-scatter'
  assert found.collectives == dict.fromkeys(kinds, 1)
  # 4 x 400; 4 x 100 + 2 x 50; 4 x 100.
  assert found.bytes == dict(zip(kinds, (1600, 500, 400), strict=True))
  assert not found.ahead and found.beside == 0


def test_cycles_between_start_and_end_are_beside_a_collective():
  found = read(
    '%a = f32[10]{0} parameter(0)',
    f'%x = f32[10] tanh(%a), {cycles(1)}',
    '%b = (f32[10], f32[40]) all-gather-start(%a), dimensions={0}',
    f'%y = f32[10] tanh(%a), {cycles(20)}',
    '%c = f32[40]{0} all-gather-done(%b)',
    f'%z = f32[10] tanh(%a), {cycles(300)}',
  )
  assert found.collectives == found.ahead == {'all-gather': 1}
  assert found.bytes == {'all-gather': 160}
  assert (found.cycles, found.beside) == (321, 20)


def test_a_collective_behind_several_fusions_is_counted_once():
  mark = 'custom-call(%g), custom_call_target="AsyncCollective'
  gather = '%g = f32[40] all-gather(%q), frontend_attributes={chain_id="7"}'
  found = read(
    '%a = f32[10]{0} parameter(0)',
    f'%c = f32[40] fusion(%a), calls=%start, {cycles(5)}',
    f'%m = f32[40] fusion(%c), calls=%next, {cycles(60)}',
    f'%e = f32[40] fusion(%m), calls=%done, {cycles(700)}',
    f'%z = f32[10] tanh(%a), {cycles(8000)}',
    before=''.join(
      f"""%{name.lower()} (q: f32[10]) -> f32[40] {{
  %q = f32[10]{{0}} parameter(0)
  {gather}
  ROOT %r = f32[40] {mark}{name}"
}}

"""
      for name in ('Start', 'Next', 'Done')
    ),
  )
  assert found.collectives == found.ahead == {'all-gather': 1}
  assert (found.cycles, found.beside) == (8765, 765)


def test_what_another_core_of_the_chip_does_is_beside():
  # TPU7x has SparseCores gather, scatter and send.
  found = read(
    '%a = f32[10]{0} parameter(0)',
    '%b = ((f32[10], token[]), f32[40]) call-start(%a, %t), '
    'async_execution_thread="sparsecore", to_apply=%called',
    f'%y = f32[10] tanh(%a), {cycles(20)}',
    '%c = f32[40]{0} call-done(%b)',
    before="""%called (q: f32[10], t: token[]) -> f32[40] {
  %t = token[] parameter(1)
  %q = f32[10]{0} parameter(0)
  %r = f32[10]{0} negate(%q), backend_config={"estimated_cycles":"99999999"}
  ROOT %g = f32[40]{0} all-gather(%r), replica_groups={{0,1,2,3}}
}, execution_thread="sparsecore"

""",
  )
  assert found.collectives == found.ahead == {'all-gather': 1}
  assert (found.cycles, found.beside) == (20, 20)


def test_a_sum_of_which_a_part_is_kept_is_a_reduce_scatter():
  found = read(
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
  assert found.bytes == {'reduce-scatter': 160}


def test_kernels_are_counted_and_notes_to_the_compiler_are_not():
  target = 'custom_call_target="tpu_custom_call"'
  found = read(
    '%a = bf16[16]{0} parameter(0)',
    f'%k.1 = bf16[16]{{0}} custom-call(%a, %a), {target}',
    f'%k.2 = bf16[16]{{0}} custom-call(%a, %a), {target}',
    f'%k.3 = (bf16[8]{{0}}, f32[2]) custom-call(%a, %a), {target}',
    '%c = s32[8] custom-call(), custom_call_target="Note"',
  )
  assert found.kernels == {'k bf16[16]': 2, 'k bf16[8]': 1}
