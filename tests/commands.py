"""Runs a command in this process, with flags as from the terminal."""

import inspect

from absl import flags


def run(module, *argv: str):
  """Returns what the main of a command's module returns for arguments."""
  known = set(flags.FLAGS)
  module._define_flags()
  try:
    rest = flags.FLAGS([module.__name__, *argv])
    takes_arguments = inspect.signature(module.main).parameters
    return module.main(rest) if takes_arguments else module.main()
  finally:
    for name in set(flags.FLAGS) - known:
      delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
