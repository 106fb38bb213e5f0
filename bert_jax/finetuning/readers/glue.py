"""The tasks of GLUE: files and columns as downloaded, labels, metrics.

Labels are in the order in which the leaderboard's data and Hugging Face's hub
number them. `dev` and `test` may be several files, as MNLI has.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Glue:
  """A task of GLUE.

  Attributes:
    folder: name of its folder in a download of GLUE.
    files: {split: path in the folder}; the splits are `train`, `dev`, `test`
      and, for MNLI, `dev_mismatched`, `test_mismatched` and `diagnostic`.
    text: column of the first text.
    pair: column of the second text; '' for single texts.
    label: column of the label.
    labels: the classes; () for a number.
    metrics: names as in `metrics.score`; the first is the one to compare by.
    submissions: {split: file name in a submission}.
    headless: columns of files that have no header.
    tfds: columns of the first and second text in TFDS, if they differ there.
  """

  folder: str
  files: dict[str, str]
  text: str
  pair: str
  label: str
  labels: tuple[str, ...]
  metrics: tuple[str, ...]
  submissions: dict[str, str]
  headless: tuple[str, ...] = ()
  tfds: tuple[str, str] | None = None


_FILES = {'train': 'train.tsv', 'dev': 'dev.tsv', 'test': 'test.tsv'}
_ENTAILS = ('entailment', 'not_entailment')
_BINARY = ('0', '1')

TASKS = {
  'cola': Glue(
    *('CoLA', _FILES, 'sentence', '', 'label', _BINARY),
    metrics=('matthews', 'accuracy'),
    submissions={'test': 'CoLA.tsv'},
    # Train and dev have no header; the test file has `index, sentence`.
    headless=('source', 'label', 'mark', 'sentence'),
  ),
  'sst2': Glue(
    *('SST-2', _FILES, 'sentence', '', 'label', _BINARY),
    metrics=('accuracy',),
    submissions={'test': 'SST-2.tsv'},
  ),
  'mrpc': Glue(
    *('MRPC', _FILES, '#1 String', '#2 String', 'Quality', _BINARY),
    metrics=('f1', 'accuracy'),
    submissions={'test': 'MRPC.tsv'},
    tfds=('sentence1', 'sentence2'),
  ),
  'stsb': Glue(
    *('STS-B', _FILES, 'sentence1', 'sentence2', 'score', ()),
    metrics=('pearson', 'spearman'),
    submissions={'test': 'STS-B.tsv'},
  ),
  'qqp': Glue(
    *('QQP', _FILES, 'question1', 'question2', 'is_duplicate', _BINARY),
    metrics=('f1', 'accuracy'),
    submissions={'test': 'QQP.tsv'},
  ),
  'mnli': Glue(
    'MNLI',
    {
      'train': 'train.tsv',
      'dev': 'dev_matched.tsv',
      'dev_mismatched': 'dev_mismatched.tsv',
      'test': 'test_matched.tsv',
      'test_mismatched': 'test_mismatched.tsv',
      # In a folder of its own, beside that of MNLI.
      'diagnostic': '../diagnostic/diagnostic.tsv',
    },
    *('sentence1', 'sentence2', 'gold_label'),
    ('entailment', 'neutral', 'contradiction'),
    metrics=('accuracy',),
    submissions={
      'test': 'MNLI-m.tsv',
      'test_mismatched': 'MNLI-mm.tsv',
      'diagnostic': 'AX.tsv',
    },
    tfds=('premise', 'hypothesis'),
  ),
  'qnli': Glue(
    *('QNLI', _FILES, 'question', 'sentence', 'label', _ENTAILS),
    metrics=('accuracy',),
    submissions={'test': 'QNLI.tsv'},
  ),
  'rte': Glue(
    *('RTE', _FILES, 'sentence1', 'sentence2', 'label', _ENTAILS),
    metrics=('accuracy',),
    submissions={'test': 'RTE.tsv'},
  ),
  'wnli': Glue(
    *('WNLI', _FILES, 'sentence1', 'sentence2', 'label', _BINARY),
    metrics=('accuracy',),
    submissions={'test': 'WNLI.tsv'},
  ),
}
