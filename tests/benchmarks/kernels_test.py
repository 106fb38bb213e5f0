"""How benchmarks/tpu/kernels.py counts a schedule, on one written by hand."""

import kernels
import pytest

# The grid has 3 steps, the loop in it 4 turns; a branch that only goes on
# downwards is no loop.
SCHEDULE = """\
LB: loop body

     0   :  { %s1 = smov 0 }
   0x1 LB: > { %s2 = sphi %s1, %s3 } /* Start region 8 :: Start region 9 */
   0x2   : > { %4 = sbr.rel (!%p4_p0) target = $region5 }
   0x3 LB: >> { %s6 = sphi %s1, %s7 } /* Start region 20 */
   0x4   : >> { %p8_p1 = scmp.ge.s32.totalorder %s7, 4 /* loop exit test */ }
   0x5   : >> { %9 = sbr.rel (!%p8_p1) target = $region20 }
   0x6   : >> {}
   0x7   : >> {}
   0x8   : >> {}
   0x9   : >> {}
   0xa   : > { %p2_p2 = scmp.ge.s32.totalorder %s3, 5 /* loop exit test */ }
   0xb   :  { %11 = sbr.rel (!%p2_p2) target = $region9 }
   0xc   :  {}
   0xd   :  {}
   0xe   :  {}
   0xf   :  {}
  0x10   :  { shalt.err (0) }
"""


def test_a_bundle_counts_as_often_as_the_loops_around_it_turn():
  outside = 2  # 0x0, 0x10
  of_grid = 2 + 6  # 0x1 to 0x2, 0xa to 0xf
  of_loop = 7  # 0x3 to 0x9
  assert kernels.cycles(SCHEDULE) == outside + 3 * (of_grid + 4 * of_loop)


def test_a_loop_without_a_limit_is_an_error():
  unknown = SCHEDULE.replace('%s7, 4 /* loop exit test */', '%s7, %s12')
  with pytest.raises(ValueError, match='no turns are known'):
    kernels.cycles(unknown)
