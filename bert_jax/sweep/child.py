"""Runs `bert_jax.main` for a sweep, and ends with the process of the sweep.

Otherwise a run whose sweep was killed would still be on the device when the
sweep is continued.

  python -m bert_jax.sweep.child PARENT FLAGS
"""

import runpy
import sys

from bert_jax.runtime import process_pool

if __name__ == '__main__':
  process_pool.end_with(int(sys.argv.pop(1)))
  runpy.run_module('bert_jax.main', run_name='__main__', alter_sys=True)
