"""Runs a command in this process, with flags as from the terminal."""

from absl import flags


def run(module, *argv: str):
  """Returns what the main of a command's module returns for arguments."""
  known = set(flags.FLAGS)
  module._define_flags()
  try:
    return module.main(flags.FLAGS([module.__name__, *argv]))
  finally:
    for name in set(flags.FLAGS) - known:
      delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
