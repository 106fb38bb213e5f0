"""What the threads of this process are doing."""

import sys
import threading
import traceback


def describe_stacks() -> str:
  """Returns the stack of each Python thread, innermost call last.

  It reads no file, so that it works while a file system does not answer.
  """
  names = {thread.ident: thread.name for thread in threading.enumerate()}
  found = []
  for ident, frame in sys._current_frames().items():
    calls = [
      f'  {f.f_code.co_filename}:{line} in {f.f_code.co_name}'
      for f, line in traceback.walk_stack(frame)
    ]
    found.append('\n'.join([f'{names.get(ident, ident)}:', *reversed(calls)]))
  return '\n'.join(found)
