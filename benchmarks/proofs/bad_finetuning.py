"""Checks the errors for wrong input of fine-tuning, and that nothing is lost.

  python benchmarks/proofs/bad_finetuning.py

Pre-trains two tiny models, then fine-tunes them by the real commands on files
that are wrong. Each case must end with one clear line and a nonzero exit code,
or go on, say what it did, and predict every row. The dev set of the last case
is one whose logits must not be kept: the memory of its run is measured. Prints a
verdict; the exit code is 1 if a case failed.
"""

import json
import os
import pathlib
import resource
import sys
import tempfile

from bad_input import ROOT, SMOKE, Cases, run

SMALL = 'smoke,by_length=False'
TEXTS = [f'the {animal} is here,{animal}' for animal in ('cat', 'dog')] * 20


class Runs:
  """Starts runs of fine-tuning in a folder, from a model in it."""

  def __init__(self, folder: str):
    self.folder, self.model = folder, 'with_pooler'

  def path(self, *parts: str) -> str:
    return os.path.join(self.folder, *parts)

  def write(self, name: str, content: str | bytes) -> str:
    """Writes a file; returns its path."""
    data = content if isinstance(content, bytes) else content.encode()
    pathlib.Path(self.path(name)).write_bytes(data)
    return self.path(name)

  def tune(self, name: str, config: str, given: str, *more: str, model=''):
    """Runs a config in the folder `name`, with data.input; see `run`."""
    return run(
      f'--config={ROOT}/configs/{config}',
      f'--workdir={self.path(name)}',
      f'--config.init_from={self.path(model or self.model)}',
      f'--config.data.input={given}',
      *more,
    )

  def classify(self, name: str, dev: str | bytes, *more: str):
    """Trains on two classes, with some content of a dev file."""
    train = self.write('train.csv', '\n'.join(['text,label', *TEXTS]))
    given = f'train={train},dev={self.write(f"{name}.csv", dev)}'
    return self.tune(name, f'classify.py:{SMALL}', given, *more)

  def count_lines(self, *parts: str) -> int:
    with open(self.path(*parts), encoding='utf-8') as file:
      return len(file.read().splitlines())


def find(stdout: str, *words: str) -> list[str]:
  """Returns the lines that hold all words."""
  return [x for x in stdout.splitlines() if all(word in x for word in words)]


def check_tables(cases: Cases, runs: Runs):
  """Checks labels, columns and texts of tables."""
  dev = 'text,label\nthe cat,cat\nthe bird,bird\n'
  found = runs.classify('label', dev)
  cases.error(
    'label not in the train set', found, 'label.csv: line 3', "'bird'"
  )
  code, stdout, _ = runs.classify('label', dev.replace('bird', 'dog'))
  said = find(stdout, 'dev accuracy')
  name = '... and the same command works once it is corrected'
  cases.show(name, code == 0 and said, '\n'.join(said))

  found = runs.classify('column', dev, '--config.data.text=review')
  cases.error('no such column', found, "'review'", 'text, label')

  code, stdout, _ = runs.classify('empty', 'text,label\n,cat\nthe dog,dog\n')
  said = find(stdout, 'WARNING', 'without text', 'line 2')
  rows = code == 0 and runs.count_lines('empty', 'predictions', 'dev.tsv') - 1
  name = 'empty text: said, kept, predicted'
  cases.show(
    name, said and rows == 2, '\n'.join(said) + f'; {rows} predictions'
  )


def check_encodings(cases: Cases, runs: Runs):
  """Checks files that are not UTF-8, or not all of them."""
  text = 'text,label\nun café,cat\nune fête,dog\n'
  first, last = text[:-13], text[-13:]
  mixed = first.encode() + last.encode('iso-8859-1')
  found = runs.classify('mixed', mixed)
  cases.error('mixed encodings', found, 'mixed.csv', 'line 3', 'UTF-8')
  found = runs.classify('utf16', text.encode('utf-16'))
  cases.error('UTF-16', found, 'utf16.csv', 'iconv -f UTF-16 -t UTF-8')


def make_squad(ids: list[str], wrong=()) -> str:
  """Returns a file of SQuAD; the numbers of questions with a wrong start."""
  parts = []
  for i, name in enumerate(ids):
    text = f'It is number {i} and Anna is in Paris'
    answer = {'text': 'Anna', 'answer_start': text.index('Anna') + (i in wrong)}
    asked = {'id': name, 'question': 'Who is in Paris?', 'answers': [answer]}
    parts.append({'context': text, 'qas': [asked]})
  return json.dumps({'data': [{'paragraphs': parts}]})


def check_answers(cases: Cases, runs: Runs):
  """Checks files of SQuAD."""
  ids = [str(i) for i in range(40)]
  good = runs.write('good.json', make_squad(ids))

  def answer(name, train):
    given = f'train={runs.write(f"{name}.json", train)},dev={good}'
    return runs.tune(name, f'squad.py:{SMALL}', given)

  twice = make_squad([*ids, '7'])
  cases.error('duplicate ids', answer('twice', twice), 'twice.json', "'7'")
  wrong = make_squad(ids, range(40))
  found = answer('all_wrong', wrong)
  cases.error('answer_start wrong everywhere', found, 'answer_start')

  train = runs.write('wrong.json', make_squad(ids, [3]))
  code, stdout, _ = runs.tune(
    'wrong', f'squad.py:{SMALL}', f'train={train},dev={train}'
  )
  said = find(stdout, 'WARNING', 'answer_start', "'3'")
  rows = 0
  if code == 0:
    path = runs.path('wrong', 'predictions', 'dev.predictions.json')
    with open(path, encoding='utf-8') as file:
      rows = len(json.load(file))
  ok = rows == 40 and len(said) == 2 and find(stdout, 'train: 39 questions')
  name = 'one wrong answer_start: left out of train, said; dev is predicted'
  cases.show(name, ok, '\n       '.join([*said, f'{rows} predictions']))


def check_words(cases: Cases, runs: Runs):
  """Checks files of tagged words."""
  good = 'Anna\tB-PER\nis\tO\n\n' * 20
  train = runs.write('train.conll', good)
  for name, line in (('ragged', 'O'), ('long', 'New\tYork\tB-LOC')):
    dev = runs.write(f'{name}.conll', f'{good}{line}\n')
    given = f'train={train},dev={dev}'
    found = runs.tune(name, f'ner.py:{SMALL}', given)
    words = f'{name}.conll: line 61', 'line 1 has 2'
    cases.error(f'ragged line of CoNLL: {line!r}', found, *words)
  dev = runs.write('tag.conll', f'{good}Rome\tB-LOC\n')
  found = runs.tune('tag', f'ner.py:{SMALL}', f'train={train},dev={dev}')
  cases.error(
    'tag not in the train set', found, 'tag.conll: line 61', "'B-LOC'"
  )


def check_choices(cases: Cases, runs: Runs):
  """Checks a file of choices."""
  good = (
    'sent1,sent2,ending0,ending1,label\n' + 'It rains,So,we stay,we go,0\n' * 20
  )
  train = runs.write('choices.csv', good)
  dev = runs.write('fifth.csv', good + 'It rains,So,we stay,we go,4\n')
  given = f'train={train},dev={dev}'
  found = runs.tune('fifth', f'swag.py:{SMALL}', given)
  cases.error('label that is no choice', found, 'fifth.csv: line 22', "'4'")


def check_pairs(cases: Cases, runs: Runs):
  """Checks a task of GLUE, and a model without a pooler."""
  header = 'index\tsentence1\tsentence2'
  rows = [
    f'{i}\tthe cat\t{word}\t{label}'
    for i, (word, label) in enumerate(
      [('cats', 'entailment'), ('dog', 'not_entailment')] * 20
    )
  ]
  os.makedirs(runs.path('RTE'))
  for split in ('train', 'dev'):
    text = '\n'.join([f'{header}\tlabel', *rows])
    runs.write(f'RTE/{split}.tsv', text)
  runs.write('RTE/test.tsv', f'{header}\n4\ta\tb\n4\tc\td\n')
  given, config = runs.path('RTE'), f'glue.py:rte,{SMALL}'
  found = runs.tune('ids', config, given)
  cases.error('duplicate ids of a submission', found, 'lines 2 and 3', "'4'")
  os.remove(runs.path('RTE/test.tsv'))
  code, stdout, _ = runs.tune('pair', config, given, model='without_pooler')
  said = find(stdout, 'pooler: new, the source has none')
  name = 'a pair task from a model without a pooler'
  cases.show(name, code == 0 and said, '\n'.join(said).strip())


def check_memory(cases: Cases, runs: Runs, classes=1000, size=100_000):
  """Checks that the logits of a large dev set are not kept."""
  rows = [f'the {i % classes},{i % classes}' for i in range(size)]
  train = runs.write('many.csv', '\n'.join(['text,label', *rows[:classes]]))
  dev = runs.write('large.csv', '\n'.join(['text,label', *rows]))
  # The largest of the runs so far; some had as large a model, and few rows.
  before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
  config = f'classify.py:{SMALL},max_documents=0,batch_size=256,epochs=1'
  code, _, stderr = runs.tune(
    'large',
    f'{config},eval.sequences={size}',
    f'train={train},dev={dev}',
  )
  after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
  logits = size * classes * 4 / 1e6
  done = code == 0 and runs.count_lines('large', 'predictions', 'dev.tsv') - 1
  ok = done == size and after - before < logits / 2
  cases.show(
    f'a dev set with {logits:.0f} MB of logits',
    ok,
    f'{done:,} predictions, at most {after:.0f} MB, {before:.0f} MB before '
    f'{stderr[-300:] if code else ""}',
  )


def main() -> int:
  """Runs all cases."""
  cases = Cases()
  with tempfile.TemporaryDirectory() as folder:
    runs = Runs(folder)
    for name, config in (
      (runs.model, SMOKE),
      ('without_pooler', f'{SMOKE},nsp=False'),
    ):
      code, _, stderr = run(config, f'--workdir={runs.path(name)}')
      cases.show(f'a model, {name}', code == 0, f'exit {code} {stderr[-300:]}')
    check_tables(cases, runs)
    check_encodings(cases, runs)
    check_answers(cases, runs)
    check_words(cases, runs)
    check_choices(cases, runs)
    check_pairs(cases, runs)
    check_memory(cases, runs)
  print(f'verdict: {"FAILED " + str(cases.failed) if cases.failed else "ok"}')
  return 1 if cases.failed else 0


if __name__ == '__main__':
  sys.exit(main())
