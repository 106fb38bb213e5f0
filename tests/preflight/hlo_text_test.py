"""HLO text as ops, on lines as the TPU compiler writes them."""

import pytest

from bert_jax.preflight import hlo_text

TEXT = """HloModule jit_step, num_partitions=4

%sum (a: f32[], b: f32[]) -> f32[] {
  %b = f32[] parameter(1)
  %a = f32[] parameter(0)
  ROOT %add.7 = f32[] add(%a, %b)
}

ENTRY %main (p: f32[8]) -> (f32[2], s32[]) {
  %n = s32[]{:T(128)} constant(7)
  ROOT %r.1 = (f32[2]{0:T(8,128)(2,1)}, s32[]) fusion(%p, /*index=1*/%n), calls=%f
}
"""


def test_ops_are_found_in_their_computations():
  computations, entry = hlo_text.parse(TEXT)
  assert entry == 'main'
  assert [op.name for op in computations['sum']] == ['b', 'a', 'add.7']
  assert [op.operands for op in computations['sum']] == [
    *(('1',), ('0',), ('a', 'b')),
  ]
  constant, fusion = computations['main']
  assert constant.operands == ('7',)
  assert (fusion.name, fusion.opcode) == ('r.1', 'fusion')
  assert fusion.type == '(f32[2]{0:T(8,128)(2,1)}, s32[])'
  assert fusion.operands == ('p', 'n')
  assert fusion.rest == ', calls=%f'


def test_bytes_of_a_tuple_are_those_of_its_parts():
  tuple_type = '(bf16[3,5]{1,0:T(8,128)(2,1)}, pred[7], token[], f32[])'
  assert hlo_text.parse_size(tuple_type) == 2 * 15 + 7 + 4
  assert hlo_text.parse_largest(tuple_type) == 30
  assert hlo_text.parse_size('u4[6]') == 3
  assert hlo_text.parse_largest('()') == 0


def test_text_without_an_entry_is_refused():
  with pytest.raises(ValueError, match='no ENTRY'):
    hlo_text.parse('HloModule jit_step\n')
