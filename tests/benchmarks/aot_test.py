"""The tables of benchmarks/tpu/aot.py, from programs written by hand."""

import dataclasses
import json

import aot
import pytest

CASE = aot.Case('v5e:2x2', 'base', 128, 256, 12)


def write(programs, case, cycles, temporary):
  """Keeps a step of these cycles and GiB."""
  path = programs.path(case)
  memory = dict.fromkeys(('parameters', 'optimizer', 'batch', 'program'), 2**30)
  memory['temporary'] = temporary * 2**30
  with open(f'{path}.json', 'w') as file:
    json.dump(memory, file)
  with open(f'{path}.hlo', 'w') as file:
    file.write(f"""HloModule jit_step, num_partitions=4

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8] parameter(0)
  %s = s32[1024] sort(%p), dimensions={{0}}
  ROOT %t = f32[8] tanh(%p), backend_config={{"estimated_cycles":"{cycles}"}}
}}
""")


@pytest.fixture
def programs(tmp_path):
  """Steps of 10 M cycles and 3 M a layer."""
  found = aot.Programs(str(tmp_path))
  for layers in aot.FEW:
    case = dataclasses.replace(CASE, layers=layers)
    write(found, case, (10 + 3 * layers) * 1_000_000, 3 * layers)
  return found


def test_all_layers_lie_on_the_line_through_few(programs):
  memory, cost = programs.line(CASE)
  assert cost.cycles == 46e6
  assert memory.temporary == 36 * 2**30
  assert memory.parameters == 2**30


def test_a_step_is_judged_by_its_goal(programs, capsys):
  aot.print_steps(programs, [CASE])
  *_, row = capsys.readouterr().out.splitlines()
  cells = row.split(' | ')
  # 64 sequences of 69.9 GFLOPs; 8192^3 in 9.557 M cycles; so 38.9 of 46 M.
  assert cells[3] == '46.00'
  assert cells[8] == '0.846'
  assert cells[-1] == '0.62 met |'
