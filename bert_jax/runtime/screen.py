"""Cleans what commands print, and copes with an output that is closed.

Names of files, words of vocabularies and messages of servers come from
elsewhere. An escape sequence in them would move the cursor or do worse.
"""

import errno
import io
import os
import signal
import stat
import sys

from bert_jax.runtime import signals

_SHOWN = {
  code: f'\\x{code:02x}'
  for code in (*range(32), *range(127, 160))
  if chr(code) not in '\t\n'
}


def clean(text: str) -> str:
  """Returns a text with its control characters spelt out, such as \\x1b.

  Tabs and line feeds stay, and a carriage return at either end, with which bars
  begin their line again.
  """
  begin, end = ('\r' * x for x in (text[:1] == '\r', text[-1:] == '\r'))
  return f'{begin}{text.strip(chr(13)).translate(_SHOWN)}{end}'


def protect():
  """Makes stdout and stderr show what is printed by `clean`.

  What they cannot encode is replaced. When a terminal is gone, nothing more is
  printed; when the other end of a pipe is closed, the command is told to stop.
  """
  for name in ('stdout', 'stderr'):
    stream = getattr(sys, name)
    stream.flush()
    raw = _Raw(stream.fileno(), 'w', closefd=False)
    screen = _Screen(
      io.BufferedWriter(raw),
      stream.encoding,
      'replace',
      line_buffering=stream.line_buffering,
      write_through=stream.write_through,
    )
    setattr(sys, name, screen)


class _Screen(io.TextIOWrapper):
  def write(self, text):
    return super().write(clean(text))


class _Raw(io.FileIO):
  def write(self, data):
    try:
      return super().write(data)
    except OSError as error:
      terminal = stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
      if error.errno != (errno.EIO if terminal else errno.EPIPE):
        raise
      with open(os.devnull, 'wb') as nowhere:
        os.dup2(nowhere.fileno(), self.fileno())
      if not terminal:  # one that closes sends SIGHUP, which may be ignored
        signals.send(signal.SIGPIPE)
      return len(data)
