"""Prints the lines of each folder and its limit; fails where there are more.

budgets.txt has the limits; --update sets each to the present lines plus 2 %.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGETS = ROOT / 'budgets.txt'


def count_lines(pattern: str) -> int:
  """Counts the lines of the text files that match, or are in such a folder."""
  paths = [
    file
    for path in ROOT.glob(pattern)
    for file in ([path] if path.is_file() else path.rglob('*'))
  ]
  return sum(
    file.read_bytes().count(b'\n')
    for file in paths
    if file.is_file() and file.suffix not in ('.png', '.pyc')
  )


def main():
  rows = [line.split() for line in BUDGETS.read_text('utf-8').splitlines()]
  counts = {pattern: count_lines(pattern) for pattern, _ in rows}
  if sys.argv[1:] == ['--update']:
    rows = [(name, count * 102 // 100) for name, count in counts.items()]
    BUDGETS.write_text(''.join(f'{x:<24}{y:>6}\n' for x, y in rows), 'utf-8')
  passed = [name for name, limit in rows if counts[name] > int(limit)]
  for name, limit in rows:
    print(f'{name:<24}{counts[name]:>6} of {limit:>6}')
  if passed:
    sys.exit(f'error: more lines than budgets.txt allows: {", ".join(passed)}')


if __name__ == '__main__':
  main()
