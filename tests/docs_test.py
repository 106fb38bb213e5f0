"""What README, docs and docstrings name exists."""

import importlib.util
import operator
import pathlib
import re

import small_run

from bert_jax.config import FIELDS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
  path: path.read_text(encoding='utf-8')
  for pattern in (
    'README.md',
    'CONTRIBUTING.md',
    'docs/*.md',
    'benchmarks/*.md',
  )
  for path in ROOT.glob(pattern)
}
SOURCES = {
  path: path.read_text(encoding='utf-8')
  for folder in ('bert_jax', 'benchmarks', 'configs', 'launch')
  for path in (ROOT / folder).rglob('*.py')
}


def _find_links(page):
  """Returns [(file, anchor)] of the relative links of a page."""
  links = re.findall(r'\]\(([^)\s#]*)#?([^)\s]*)\)', PAGES[page])
  return [
    ((page.parent / (x or page.name)).resolve(), y)
    for x, y in links
    if '://' not in x
  ]


def _find_anchors(page):
  headings = re.findall(r'^#+ (.*)$', PAGES[page], re.MULTILINE)
  return {re.sub(r'[^\w -]', '', x).lower().replace(' ', '-') for x in headings}


def test_links_lead_to_files_and_headings():
  for page in PAGES:
    for path, anchor in _find_links(page):
      assert path.exists(), page
      assert not anchor or anchor in _find_anchors(path), page


def test_pages_that_code_names_exist():
  for source, text in SOURCES.items():
    named = re.findall(r'\b(docs/\w+\.md)(?:#([\w-]+))?', text)
    for page, anchor in named:
      assert ROOT / page in PAGES, source
      assert not anchor or anchor in _find_anchors(ROOT / page), source


def test_every_page_is_in_the_index():
  index = ROOT / 'docs/README.md'
  listed = {path for path, _ in _find_links(index)}
  assert not {*ROOT.glob('docs/*.md')} - {index} - listed
  assert index in {path for path, _ in _find_links(ROOT / 'README.md')}


def test_every_benchmark_command_is_in_their_readme():
  table = PAGES[ROOT / 'benchmarks/README.md']
  commands = [
    path.relative_to(ROOT).as_posix()
    for path in ROOT.glob('benchmarks/*/*.py')
    if "__name__ == '__main__'" in SOURCES[path]
  ]
  assert commands
  assert [path for path in commands if path not in table] == []


def test_named_python_files_exist():
  # a71d0fb:benchmarks/... is in that commit; trainer/fit.py is in bert_jax.
  pattern = r'(?<![\w/:.-])(?!torch/)(?:\w+/)+\w+\.py\b'
  for page, text in (PAGES | SOURCES).items():
    places = page.parent, ROOT, ROOT / 'bert_jax', ROOT / 'benchmarks'
    for name in set(re.findall(pattern, text)):
      assert any((x / name).is_file() for x in places), (page, name)


def test_named_tests_exist():
  tests = {path.name for path in ROOT.glob('*/**/*_test.py')}
  tests |= {'x_test.py'}  # that of any x.py, in CONTRIBUTING.md
  for page, text in (PAGES | SOURCES).items():
    assert not set(re.findall(r'\b\w+_test\.py\b', text)) - tests, page


def test_named_modules_exist():
  for page, text in PAGES.items():
    named = re.findall(r'python -m (bert_jax[\w.]*)', text)
    for package, name in re.findall(
      r'from (bert_jax[\w.]*) import (\w+)', text
    ):
      named.append(f'{package}.{name}')
    missing = [name for name in named if not importlib.util.find_spec(name)]
    assert not missing, page


def test_fields_of_flags_exist():
  for page, text in (PAGES | SOURCES).items():
    named = set(re.findall(r'--config\.([a-z][\w.]*\w)', text))
    assert not named - FIELDS.keys() - {'field'}, page


def test_moments_of_the_proofs_exist():
  for module, name in small_run.MOMENTS.values():
    owner = importlib.import_module(f'bert_jax.{module}')
    assert operator.attrgetter(name)(owner)
