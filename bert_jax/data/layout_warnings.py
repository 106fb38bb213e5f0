"""Warns of text that may have been read in another layout than it has."""

from bert_jax import errors
from bert_jax.corpus import layout_doubts

_RANDOM = 0.8  # of the pairs; of long documents 55 to 60 % are
_FEW = 3  # sentences of a document
_ENOUGH = 100  # documents to judge by

_SAID = {
  layout_doubts.WRAPPED: 'whose lines seem to be hard-wrapped, which ends '
  'sentences where a line ends; with data.layout=files, the lines of each file, '
  'or text of JSON, are joined',
  layout_doubts.UNBROKEN: 'of much text without a blank line, each a single '
  'document; if each line is one, set data.layout=lines, or else put blank '
  'lines between documents',
  layout_doubts.BROKEN: 'with many short documents, since blank lines separate '
  'them; if each file is a document, set data.layout=files',
}
_BLANK = (
  'if blank lines separate paragraphs or sentences, put them between documents '
  'only or, with data.layout=files, each document in a file; '
)
_ADVICE = {
  'files': '',
  'lines': 'if they are longer than a line, put blank lines between documents, '
  'with data.layout=paragraphs; ',
}


def find(manifest: dict) -> list[str]:
  """Returns lines for the terminal, with the layout that may fit."""
  doubts = manifest.get('doubts', {})
  lines = [
    f'WARNING: the input has {errors.count(doubts[x], "file")} {said}'
    for x, said in _SAID.items()
    if doubts.get(x, 0) > (x == layout_doubts.BROKEN)  # a file may be a corpus
  ]
  layout = manifest['recipe']['layout']
  documents = manifest['documents']['train']
  mean = manifest['sentences'] / max(documents, 1)
  random = max(x['random_share'] for x in manifest['lengths'].values())
  if documents >= _ENOUGH and (mean < _FEW or random > _RANDOM):
    lines.append(
      f'WARNING: documents have {mean:.1f} sentences on average, and {random:.0%} '
      f'of the pairs are random: {_ADVICE.get(layout, _BLANK)}if they are so '
      'short, train with objective.nsp=False'
    )
  return lines
