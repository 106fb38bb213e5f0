"""Runs the examples in docstrings."""

import doctest

import pytest

from bert_jax.data import masking, row_format
from bert_jax.finetuning.readers import table_files
from bert_jax.interop import name_table
from bert_jax.model import losses
from bert_jax.runtime import markdown
from bert_jax.tokenization import tokenizer
from bert_jax.train import optimizer


@pytest.mark.parametrize(
  'module',
  [
    losses,
    markdown,
    masking,
    name_table,
    optimizer,
    row_format,
    tokenizer,
    table_files,
  ],
  ids=lambda module: module.__name__,
)
def test_examples_in_docstrings_give_what_they_say(module):
  found = doctest.testmod(module)
  assert found.attempted and not found.failed
