"""Writes TSV files as `readers.table_files` reads them: without any quotes."""

from collections.abc import Iterable, Sequence

from bert_jax import errors

_BREAKS = '\t', '\n', '\r'


def write(path: str, rows: Iterable[Sequence[str]]):
  """Writes rows of texts, the first of which names the columns.

  Raises:
    errors.UserError: if a text cannot be a field, see `fits`.
  """
  with open(path, 'w', encoding='utf-8', newline='\n') as file:
    for row in rows:
      for text in row:
        if not fits(text):
          raise errors.UserError(
            f'{text!r} cannot be written to a TSV file, which has no quotes for '
            'tabs and line feeds; write a .csv or .jsonl file.'
          )
      file.write('\t'.join(row) + '\n')


def fits(text: str) -> bool:
  """Returns whether a text can be a field: it has no tab and no line feed."""
  return not any(x in text for x in _BREAKS)


def format_number(value: float) -> str:
  """Returns a number in 8 digits; float32 has hardly more.

  >>> format_number(3.2e-5), format_number(0.5)
  ('3.2e-05', '0.5')
  """
  return f'{value:.8g}'
