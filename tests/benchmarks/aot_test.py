"""The tables of benchmarks/tpu/aot.py, from programs written by hand."""

import json

import aot_programs
import aot_tables
import pytest


def write(programs, settings, cycles, temporary=1, bits=8):
  """Keeps a step of these cycles, GiB and random bytes."""
  path = programs.path(settings)
  memory = dict.fromkeys(('parameters', 'optimizer', 'batch', 'program'), 2**30)
  memory['temporary'] = temporary * 2**30
  with open(f'{path}.json', 'w') as file:
    json.dump({'fits': True, 'memory': memory}, file)
  with open(f'{path}.hlo', 'w') as file:
    file.write(f"""HloModule jit_step, num_partitions=4

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  %s = s32[1024] sort(%p), dimensions={{0}}
  %r = u8[{bits}] rng-bit-generator(%p), algorithm=rng_default
  ROOT %t = f32[8] tanh(%p), backend_config={{"estimated_cycles":"{cycles}"}}
}}
""")


CASE = aot_programs.settings_of('v5e:2x2', 'base', 128, 256)


@pytest.fixture
def programs(tmp_path):
  """Steps of 10 M cycles and, a layer, 3 M here and 6 M in FlaxBert."""
  found = aot_programs.Programs(str(tmp_path), None)
  for program, each in (('ours', 3), ('flax', 6)):
    for layers in (2, 4):
      settings = {**CASE, 'program': program, 'layers': layers}
      cycles = (10 + each * layers) * 1_000_000
      write(found, settings, cycles, temporary=each * layers)
  return found


def test_a_case_is_the_papers_recipe():
  assert (CASE['predictions'], CASE['layers'], CASE['dropout']) == (20, 12, 0.1)


def test_all_layers_lie_on_the_line_through_few(programs):
  memory, cost = programs.line(CASE)
  assert cost.cycles == 46e6
  assert memory.temporary == 36 * 2**30
  assert memory.parameters == 2**30


def test_a_step_is_judged_by_its_goal(programs, capsys):
  aot_tables.steps(programs, [CASE])
  *_, row, uncosted = capsys.readouterr().out.splitlines()
  cells = row.split(' | ')
  # 64 sequences of 69.9 GFLOPs; 8192^3 in 9.557 M cycles; so 38.9 of 46 M.
  assert cells[3] == '46.00'
  assert cells[8] == '0.846'
  assert cells[-1] == '0.62 met |'
  assert uncosted.endswith('base S=128: 1 sort (0 MB)')


def test_a_layer_is_products_and_other_ops(programs, capsys):
  aot_tables.layers(programs, [CASE])
  *_, row = capsys.readouterr().out.splitlines()
  # 64 sequences of 5.59 GFLOPs a layer at 131,333 a cycle; tanh is no product.
  assert row.split(' | ')[3:] == ['0.000', '2.723', '0.00', '3.000', '1.10 |']


def test_flax_bert_is_compared_by_the_cycles_of_a_sequence(programs, capsys):
  aot_tables.flax(programs, [CASE])
  cells = capsys.readouterr().out.splitlines()[-1].split(' | ')
  # 82 M against 46 M, both of 256 sequences on four chips.
  assert cells[4:7] == ['0.7188', '1.2812', '1.78']
  assert cells[-2:] == ['0.50', '1.6 met |']


def test_dropout_costs_its_share_and_no_bits_of_other_chips(programs, capsys):
  for layers in (2, 4):  # 44.62 M of all layers, 3 % less than 46
    cycles = 10_000_000 + layers * 2_885_000
    write(programs, {**CASE, 'dropout': 0.0, 'layers': layers}, cycles)
  more = {**CASE, 'topology': 'v5e:8x8', 'rows': 4096, 'layers': 2}
  write(programs, more, 1, bits=128)
  aot_tables.dropout(programs, [CASE])
  *_, shares, bits = capsys.readouterr().out.splitlines()
  assert shares.endswith('| 44.62 | 46.00 | 3.0% | 3.0% | 5% met |')
  assert bits.endswith('8 on v5e:2x2, 128 on v5e:8x8: MISSED')


def test_the_largest_batch_follows_from_two(programs, capsys, monkeypatch):
  # 64 rows of a chip take 36 GiB here and 72 there, besides 4 GiB of others.
  monkeypatch.setattr(
    aot_tables.compile_step, 'describe_devices', lambda _: [None]
  )
  monkeypatch.setattr(
    aot_tables.compile_step, 'get_usable_memory', lambda _: 112 * 2**30
  )
  for program, each in (('ours', 3), ('flax', 6)):
    for layers in (2, 4):
      twice = {**CASE, 'program': program, 'layers': layers, 'rows': 512}
      write(programs, twice, 1, temporary=2 * each * layers)
  aot_tables.memory(programs, [CASE])
  assert (
    capsys.readouterr()
    .out.splitlines()[-1]
    .endswith('| 576.00 | 1152.00 | 192 | 96 | 2.00 | 2 met |')
  )


def test_the_line_is_held_against_all_layers(programs, capsys):
  write(programs, CASE, 50_000_000)
  aot_tables.full(programs, [CASE])
  assert capsys.readouterr().out.endswith(
    '46.00 M cycles by the line, 50.00 M compiled: -8.0%\n'
  )


def test_a_step_that_does_not_fit_is_no_step(tmp_path):
  found = aot_programs.Programs(str(tmp_path), None)
  with open(f'{found.path(CASE)}.json', 'w') as file:
    json.dump({'fits': False, 'memory': {}}, file)
  with pytest.raises(SystemExit, match='does not fit; give fewer tokens'):
    found.get(CASE)
