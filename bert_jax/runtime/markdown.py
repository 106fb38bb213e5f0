"""Tables in Markdown, for the pages that a run writes."""

from collections.abc import Iterable, Sequence


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns a table as GitHub and Hugging Face show it.

  A bar within a cell would begin the next one, also between backticks, and is
  escaped.

  >>> print(make_table(('field', 'value'), [('optimizer.freeze', '`^(a|b)/`')]))
  | field | value |
  | --- | --- |
  | optimizer.freeze | `^(a\\|b)/` |
  """
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join(
    '| ' + ' | '.join(cell.replace('|', r'\|') for cell in line) + ' |'
    for line in lines
  )
