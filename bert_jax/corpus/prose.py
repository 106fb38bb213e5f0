"""The built-in corpus `python-docs`: English prose of the Python installation.

It consists of the topics of `help()` and the docstrings of the standard library
and of the installed packages, read by `ast.parse`; nothing is imported. Its
size depends on what is installed, not on this package.
"""

import ast
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator

from bert_jax.corpus import document
from bert_jax.runtime import process_pool

_TOPICS = os.path.join('pydoc_data', 'topics.py')

# Not read: tests, vendored packages, this package (the corpus must not change
# when it does) and generated code.
_SKIPPED_FOLDERS = frozenset(
  '__pycache__ bert_jax dist-packages extern externals idle_test '
  'lib2to3 node_modules site-packages test tests vendor vendored '
  '_vendor _vendored_packages'.split()
)
_SKIPPED_FILES = re.compile(
  r'__editable__.*|test_.*|.*_test\.py|conftest\.py|.*_(pb2|gen)\.py'
)
# Bytes in triple quotes: parsing is slow, and most code has little prose.
_MIN_QUOTED = 250
_FILES_PER_JOB = 32

_MIN_CHARS = 200  # of a document
_OWN_CHARS = 350  # a class or function with more prose is a document by itself

# Words that English sentences contain, but tables, signatures and code do not.
_COMMON = frozenset(
  'a an and are as at be but by can for from has have if in is it its may not '
  'of on or should that the then there these this to use used was when which '
  'will with you'.split()
)
# What precedes the text of a list's item, a field, an argument or a directive.
_ITEM = re.compile(
  r'(?:[-*+•]|\(?\w{1,2}[.)])\s+'
  r'|\.\. [\w:-]+::\s*[\d.]*\s*'
  r'|[:@][a-z]+(?: [\w. *,|\[\]]+)?:(?:\s+|$)'
  r'|[*`]*[\w.]+[`]*(?: \([^)]*\))?\s?: +(?=[A-Z"`])'
)
_CODE = re.compile(r'>>>|```|#|\.\. ')  # or a reference
_RULE = re.compile(r'([=\-~^*#+"_])\1{2,}$')
_MARKUP = [
  (re.compile(r':[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`'), r'\1'),  # a role
  (re.compile(r'`([^`<]+?)\s*<[^`>]*>`__?'), r'\1'),  # a link
  (re.compile(r':(?=:$)|`+|\*\*|\s\[\w+\]_|(?<=\w)_\b(?!\w)'), ''),
]


def read_documents() -> Iterator[document.Document]:
  """Reads the prose of this Python installation, in a fixed order.

  A document is the text of a help topic, of a module's short docstrings, or of
  one long docstring. Repeated paragraphs and short documents are left out.
  """
  files = list(_files())
  jobs = [
    files[k : k + _FILES_PER_JOB] for k in range(0, len(files), _FILES_PER_JOB)
  ]
  seen: set[str] = set()
  count = min(process_pool.resolve(process_pool.ONE_PER_CORE), len(jobs))
  for found in process_pool.run(_read_files, [(job,) for job in jobs], count):
    for paragraphs in found:
      new = [x for x in dict.fromkeys(paragraphs) if x not in seen]
      seen.update(new)
      if sum(map(len, new)) >= _MIN_CHARS:
        yield document.Document(new)


def _files() -> Iterator[str]:
  """Yields the path of every module to read."""
  paths = sysconfig.get_paths()
  roots = [paths[key] for key in ('stdlib', 'purelib', 'platlib')]
  for root in dict.fromkeys(map(os.path.realpath, roots)):
    for folder, folders, names in os.walk(root):
      folders[:] = sorted(f for f in folders if f not in _SKIPPED_FOLDERS)
      for name in sorted(names):
        if name.endswith('.py') and not _SKIPPED_FILES.fullmatch(name):
          yield os.path.join(folder, name)


# One file, in a worker.


def _read_files(files) -> list[list[str]]:
  return [found for path in files for found in _read(path)]


def _read(path: str) -> list[list[str]]:
  """Returns the paragraphs of each of a module's documents."""
  try:
    with open(path, 'rb') as file:
      source = file.read()
    topics = path.endswith(os.sep + _TOPICS)
    quoted = sum(map(len, source.split(b'"""')[1::2]))
    if not topics and quoted < _MIN_QUOTED:
      return []
    with warnings.catch_warnings(action='ignore'):  # about invalid escapes
      tree = ast.parse(source)
  except (OSError, SyntaxError, ValueError, RecursionError):
    return []  # a broken link, a template, or code for another Python
  if topics:
    found = [x for x in ast.walk(tree) if isinstance(x, ast.Dict)]
    return [clean(ast.literal_eval(x)) for each in found for x in each.values]
  out: list[list[str]] = []
  rest = _docstrings(tree, out)
  return [rest, *out]


def _docstrings(node, out: list[list[str]]) -> list[str]:
  """Collects the paragraphs of a module, class or function.

  If they are long enough, they are appended to `out` as a document. Otherwise
  they are returned, to become part of the enclosing class or module.
  """
  paragraphs = clean(ast.get_docstring(node, clean=False) or '')
  functions = ast.FunctionDef, ast.AsyncFunctionDef
  if not isinstance(node, functions):
    for child in node.body:
      if isinstance(child, (ast.ClassDef, *functions)):
        paragraphs += _docstrings(child, out)
  if isinstance(node, ast.Module) or sum(map(len, paragraphs)) < _OWN_CHARS:
    return paragraphs
  out.append(paragraphs)
  return []


def clean(docstring: str) -> list[str]:
  """Returns the paragraphs of a docstring that are English sentences.

  Doctests, code, headings, signatures, directives and markup are left out.
  """
  paragraphs, lines = [], []
  margin = (
    None  # of a paragraph's lines; an item's are indented from the second
  )
  for line in [*inspect.cleandoc(docstring).split('\n'), '']:
    text = line.strip()
    indent, item = len(line) - len(line.lstrip()), _ITEM.match(text)
    starts = not text or item or _CODE.match(text)
    if starts or margin not in (None, indent):
      paragraphs.append(' '.join(lines))
      lines = []
    margin = None if item or not text else indent
    if _RULE.match(text):
      lines = []  # the line above is a heading
    else:
      lines.append(text[item.end() :] if item else text)
  texts = (_strip_markup(x) for x in paragraphs if not _CODE.match(x))
  return [text for text in texts if _is_prose(text)]


def _strip_markup(text: str) -> str:
  for pattern, replacement in _MARKUP:
    text = pattern.sub(replacement, text)
  return ' '.join(text.split())


def _is_prose(text: str) -> bool:
  words = text.split()
  if not text.isprintable():  # controls, and halves of surrogate pairs
    return False
  if len(words) < 6 or (len(words) < 10 and text[-1] not in '.!?'):
    return False
  # A sentence may begin with the lower-case name of a function. Signatures and
  # list items may, too, but they do not end in a full stop.
  if not (text[0].isupper() or text[0] in '"\'(' or text[-1] == '.'):
    return False
  letters = sum(map(str.isalpha, text))
  if letters < 0.7 * (len(text) - len(words) + 1):
    return False
  common = sum(word.lower() in _COMMON for word in words)
  return common >= 0.12 * len(words)
