"""Tests of reading tables: that no row and no column is lost."""

import pytest

from bert_jax import errors
from bert_jax.finetuning.readers import table_files


def read(tmp_path, content, name) -> table_files.Table:
  (tmp_path / name).write_text(content, encoding='utf-8', newline='')
  return table_files.read(str(tmp_path / name))


def test_a_field_of_csv_may_be_as_long_as_a_book(tmp_path):
  text = 'word, ' * 30_000
  table = read(tmp_path, f'text,label\n"{text}",a\n', 'long.csv')
  assert table.rows == [(2, {'text': text, 'label': 'a'})]


@pytest.mark.parametrize('name, comma', [('twice.csv', ','), ('a.tsv', '\t')])
def test_two_columns_of_one_name_are_refused(tmp_path, name, comma):
  content = '\ntext,text,label\nfirst,second,a\n'.replace(',', comma)
  with pytest.raises(errors.UserError, match="line 2 names .* columns 'text'"):
    read(tmp_path, content, name)


def test_columns_without_a_name_may_be_several(tmp_path):
  table = read(tmp_path, 'text,,\ncat,,\n', 'unnamed.csv')
  assert table.rows == [(2, {'text': 'cat', '': ''})]


@pytest.mark.parametrize('name', ['one.csv', 'one.tsv'])
@pytest.mark.parametrize('end', ['\n', '\r\n'])
def test_an_empty_line_of_the_only_column_is_a_row(tmp_path, name, end):
  lines = ['text', 'first', '', 'third', '', '']
  table = read(tmp_path, end.join(lines), name)
  assert table.rows == [
    (2, {'text': 'first'}),
    (3, {'text': ''}),
    (4, {'text': 'third'}),
    (5, {'text': ''}),
  ]


@pytest.mark.parametrize('name, comma', [('two.csv', ','), ('two.tsv', '\t')])
def test_empty_lines_between_rows_of_columns_are_none(tmp_path, name, comma):
  content = 'text,label\n\ncat,a\n\n'.replace(',', comma)
  table = read(tmp_path, content, name)
  assert table.rows == [(3, {'text': 'cat', 'label': 'a'})]
