"""Tests of the table of a sweep and how a terminal shows it."""

import io
import os

from bert_jax.sweep import states, table
from tests.sweep import summary_test

WAITING = states.State(None, 0, 0, None, {})


def test_the_table_has_a_line_for_each_setting():
  runs = summary_test.make_runs()
  values = [0.5, 1.0, None, None, None, None]
  found = {
    run.name: WAITING
    if x is None
    else WAITING._replace(
      results=summary_test.make_results(x, 'poor' if x == 0.5 else None)
    )
    for run, x in zip(runs, values, strict=True)
  }
  found[runs[2].name] = states.State(None, 30, 120, 0.61234, {})
  found[runs[3].name] = states.State(None, 60, 120, 0.5, {'f1': 0.875})
  assert table.render(runs, found, {runs[4].name: 1}) == [
    'learning_rate  done  f1               best',
    '1e-05          2/3   0.7500 ± 0.3536  1.0000  seed=2 25% loss 0.612, '
    '1 no better than a constant',
    '2e-05          0/3                            '
    'seed=0 50% f1 0.8750, seed=1 failed',
  ]


class Terminal(io.StringIO):
  """What a terminal shows of the lines written to it."""

  def isatty(self):
    return True

  def show(self) -> list[str]:
    lines, at = [''], 0
    for piece in self.getvalue().replace('\x1b', '\0\x1b').split('\0'):
      if piece.startswith('\x1b['):
        end = next(i for i, x in enumerate(piece) if x in 'FKJ')
        number, code, piece = piece[2:end], piece[end], piece[end + 1 :]
        if code == 'F':
          at -= int(number)
        elif code == 'J':
          lines[at:] = ['']
      for part in piece.splitlines(keepends=True):
        lines[at] = part.rstrip('\n') or lines[at]
        if part.endswith('\n'):
          at += 1
          if at == len(lines):
            lines.append('')
    return lines


def use_terminal(monkeypatch):
  """Makes standard output a terminal of 20 columns and 5 lines."""
  found = Terminal()
  monkeypatch.setattr('sys.stdout', found)
  monkeypatch.setenv('TERM', 'xterm')
  size = os.terminal_size((20, 5))
  monkeypatch.setattr('shutil.get_terminal_size', lambda: size)
  return found


def test_a_terminal_shows_the_newest_lines_below_what_was_printed(monkeypatch):
  terminal = use_terminal(monkeypatch)
  live = table.Live()
  live.write('begin')
  live.draw(['a', 'b', 'c'])
  live.draw(['a', 'B'])
  live.write('event')
  live.draw(['a', 'BB'])
  assert terminal.show() == ['begin', 'event', 'a', 'BB', '']
  live.clear()
  live.write('end')
  assert terminal.show() == ['begin', 'event', 'end', '']


def test_lines_that_do_not_fit_are_cut_and_equal_ones_not_drawn(monkeypatch):
  terminal = use_terminal(monkeypatch)
  live = table.Live()
  live.draw(['x' * 30, *'bcdef'])
  assert terminal.show() == ['x' * 19, 'b', 'c', '']
  size = len(terminal.getvalue())
  live.draw(['x' * 40, *'bcxyz'])
  assert len(terminal.getvalue()) == size


def test_without_a_terminal_nothing_is_drawn(capsys):
  live = table.Live()
  live.draw(['a'])
  live.write('event')
  live.clear()
  assert capsys.readouterr().out == 'event\n'
