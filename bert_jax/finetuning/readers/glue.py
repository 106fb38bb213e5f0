"""The tasks of GLUE: columns as downloaded, labels, metrics.

Labels are in the order in which the leaderboard's data and Hugging Face's hub
number them.
"""

import dataclasses
from collections.abc import Mapping

# Its dev rows contradict its training rows: the paper leaves it out of the mean.
LEFT_OUT = 'wnli'
_ENTAILS = ('entailment', 'not_entailment')
_BINARY = ('0', '1')


@dataclasses.dataclass(frozen=True)
class Glue:
  """A task of GLUE."""

  folder: str
  text: str
  pair: str  # column of the second text; '' for single texts
  label: str
  labels: tuple[str, ...]  # () for a number
  metrics: tuple[str, ...] = ('accuracy',)  # models are compared by the first
  headless: tuple[str, ...] = ()  # columns of files that have no header
  # {split: its file} and {split: its file in a submission} of further splits.
  more: Mapping[str, str] = dataclasses.field(default_factory=dict)
  others: Mapping[str, str] | None = None

  @property
  def submissions(self) -> Mapping[str, str]:
    return self.others or {'test': f'{self.folder}.tsv'}


_PAIR = 'sentence1', 'sentence2'
_F1 = 'f1', 'accuracy'

TASKS = {
  'cola': Glue(
    *('CoLA', 'sentence', '', 'label', _BINARY, ('matthews', 'accuracy')),
    # Train and dev have no header; the test file has `index, sentence`.
    headless=('source', 'label', 'mark', 'sentence'),
  ),
  'sst2': Glue('SST-2', 'sentence', '', 'label', _BINARY),
  'mrpc': Glue(
    *('MRPC', '#1 String', '#2 String', 'Quality', _BINARY, _F1),
  ),
  'stsb': Glue('STS-B', *_PAIR, 'score', (), ('pearson', 'spearman')),
  'qqp': Glue('QQP', 'question1', 'question2', 'is_duplicate', _BINARY, _F1),
  'mnli': Glue(
    *('MNLI', *_PAIR, 'gold_label'),
    ('entailment', 'neutral', 'contradiction'),
    more={
      'dev_mismatched': 'dev_mismatched.tsv',
      'test_mismatched': 'test_mismatched.tsv',
      # In a folder of its own, beside MNLI's.
      'diagnostic': '../diagnostic/diagnostic.tsv',
    },
    others={
      'test': 'MNLI-m.tsv',
      'test_mismatched': 'MNLI-mm.tsv',
      'diagnostic': 'AX.tsv',
    },
  ),
  'qnli': Glue('QNLI', 'question', 'sentence', 'label', _ENTAILS),
  'rte': Glue('RTE', *_PAIR, 'label', _ENTAILS),
  'wnli': Glue('WNLI', *_PAIR, 'label', _BINARY),
}
