"""What is shown: cards of data and models in Markdown, tables, and pictures.

Cards are made to be published, so of a path they have the last part alone.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_jax import errors

# Fields whose values are paths, of a config or of a recipe of data.
_PATHS = re.compile(r'init_from|(data\.)?(inputs?|vocab|dir)')
_NAMED = re.compile(r'((?:train|dev|test)\w*=)?(.*)', re.DOTALL)
_PATTERN = re.compile('[*?[]')
_LICENCE = """# FILL IN the licence under which you publish this model, such as
# apache-2.0; those of the texts and of the model that it started from matter,
# too. Every export overwrites this file.
license: unknown"""


def make_card(title: str, sections: Mapping[str, str]) -> str:
  """Returns a card with the sections, {heading: text}, that have a text."""
  parts = [f'# {title}']
  for heading, text in sections.items():
    parts += [f'## {heading}', text] if text else []
  return '\n\n'.join(parts) + '\n'


def make_metadata(pipeline: str, name: str, language: str = '') -> str:
  """Returns Hugging Face's metadata, with which a model's card begins."""
  if ',' in language:
    language = f'[{", ".join(dict.fromkeys(language.split(",")))}]'
  lines = [_LICENCE, *([f'language: {language}'] if language else [])]
  lines += ['library_name: transformers', f'pipeline_tag: {pipeline}']
  return '\n'.join(['---', *lines, f'tags:\n- {name.lower()}\n---\n\n'])


def show_loading(auto: str, command: str) -> str:
  """Returns how a folder is loaded, by a class of transformers or without."""
  return f"""```python
from transformers import {auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained('THIS_FOLDER')
model = {auto}.from_pretrained('THIS_FOLDER')
```

Without transformers: `python -m bert_jax.{command}`"""


def make_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
  """Returns a table as GitHub and Hugging Face show it, of text and numbers.

  A bar within a cell would begin the next one, also between backticks, and is
  escaped.

  >>> print(make_table(('field', 'value'), [('freeze', '`^(a|b)/`'), ('n', 4096)]))
  | field | value |
  | --- | --- |
  | freeze | `^(a\\|b)/` |
  | n | 4,096 |
  """
  lines = [head, ['---'] * len(head), *rows]
  return '\n'.join(f'| {" | ".join(map(_show_cell, line))} |' for line in lines)


def _show_cell(cell: Any) -> str:
  return show(cell).replace('|', r'\|').replace('\n', ' ')


def show(cell: Any) -> str:
  """Returns a text as it is, and a number in few digits."""
  if isinstance(cell, str):
    return cell
  return f'{cell:.4g}' if isinstance(cell, float) else f'{cell:,}'


def list_facts(facts: Mapping[str, Any]) -> str:
  """Returns a table of facts, {name: value}, if there are any."""
  return make_table(('', ''), facts.items()) if facts else ''


def list_fields(fields: Mapping[str, Any]) -> str:
  """Returns a table of fields as JSON, paths by their last parts."""
  rows = []
  for name, value in fields.items():
    if _PATHS.fullmatch(name):
      value = name_paths(value) if isinstance(value, str) else value
      value = [*map(name_paths, value)] if isinstance(value, list) else value
    rows.append((name, f'`{json.dumps(value, ensure_ascii=False)}`'))
  return make_table(('field', 'value'), rows)


def name_paths(text: str) -> str:
  """Returns the last part of each path in a list with commas.

  That of a pattern has its folder, without which it would say nothing.

  >>> name_paths('train=/home/ann/a.tsv,dev=gs://b/dev.tsv,/home/novels/*')
  'train=a.tsv,dev=dev.tsv,novels/*'
  >>> name_paths('tfds:wiki40b/en:train')
  'tfds:wiki40b/en:train'
  >>> name_paths('hf:me/bert@0a1b,hf://datasets/me/texts/*.parquet')
  'hf:me/bert@0a1b,hf://datasets/me/texts/*.parquet'
  """
  return ','.join(map(_name_path, text.split(',')))


def _name_path(text: str) -> str:
  if text.startswith(('tfds:', 'hf:')):  # public names
    return text
  split, path = _NAMED.fullmatch(text).groups('')
  parts = path.rstrip('/').split('/')
  return split + '/'.join(parts[-2 if _PATTERN.search(parts[-1]) else -1 :])


def import_matplotlib():
  """Returns matplotlib with `figure`, `font_manager`, `ticker`, if installed."""
  advice = 'install it with: pip install matplotlib'
  with errors.explaining('a picture needs matplotlib', advice, ImportError):
    import matplotlib.figure
    import matplotlib.font_manager
    import matplotlib.ticker
  logging.getLogger('matplotlib').setLevel(logging.WARNING)
  # What is drawn are names and words, in which $ begins no formula.
  matplotlib.rcParams['text.parse_math'] = False
  return matplotlib
