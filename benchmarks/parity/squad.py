"""Checks windows and answers of SQuAD's files, and compares them with transformers.

  python benchmarks/parity/squad.py --data=SQUAD --uncased=vocab.txt \\
    --multilingual=vocab.txt [--transformers=PYTHON]

SQUAD is a folder with dev-v1.1.json, KorQuAD_v1.0_dev.json and xquad/; files that
it lacks are left out. The vocabularies are Google's: dev-v1.1.json is encoded with
the uncased one, the others with the multilingual cased one, in windows of 384
tokens every 128, with questions of at most 64. For each file it prints

* the share of first answers that the tokens with which they are labelled in a
  window give back, character for character; in English, 99.5% are asked for;
* with PYTHON, an interpreter that has transformers 4, whether BertTokenizerFast
  makes the same windows with the same ids, for every question of up to 64 tokens.

The exit code is 1 if a share is too small or a window differs.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

_LENGTH, _STRIDE, _QUERY = 384, 128, 64
_LEAST = 0.995  # of English answers


def theirs(path):
  """Encodes the questions of a job with transformers, which runs this."""
  import transformers

  with open(path, encoding='utf-8') as file:
    job = json.load(file)
  with open(job['path'], encoding='utf-8') as file:
    content = json.load(file)
  words = transformers.BertTokenizerFast(
    vocab_file=job['vocab'], do_lower_case=job['lowercase']
  )
  rows, questions, number = [], [], 0
  for article in content['data']:
    for part in article['paragraphs']:
      for question in part['qas']:
        n = len(words(question['question'], add_special_tokens=False).input_ids)
        if n <= _QUERY:
          found = words(
            question['question'],
            part['context'],
            max_length=_LENGTH,
            truncation='only_second',
            # They count the tokens that two windows share.
            stride=max(_LENGTH - 3 - n - _STRIDE, 0),
            return_overflowing_tokens=True,
          )
          rows += found.input_ids
          questions += [number] * len(found.input_ids)
        number += 1
  np.savez(
    path + '.npz',
    ids=np.concatenate([np.array(x, np.int32) for x in rows]),
    ends=np.cumsum([len(x) for x in rows]),
    questions=questions,
  )


def run_theirs(python, folder, **job):
  path = os.path.join(folder, 'job.json')
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(job, file)
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  environment['TRANSFORMERS_VERBOSITY'] = 'error'
  command = [python, os.path.abspath(__file__), '--job', path]
  subprocess.run(command, check=True, env=environment, cwd=folder)
  with np.load(path + '.npz') as found:
    return dict(found)


def check_file(given, path, vocab, lowercase, folder):
  """Prints what is found of a file; returns whether it is good."""
  from bert_jax.finetuning.readers import squad
  from bert_jax.finetuning.spans import span_data
  from bert_jax.model import classifier
  from bert_jax.tokenization import offsets, tokenizer

  words = tokenizer.Tokenizer.load(vocab, lowercase)
  content = squad.read(path)
  located = offsets.locate(words, content.passages)
  settings = classifier.Spans(_STRIDE, _QUERY, 30, None)
  split = span_data.encode_questions(words, content, located, _LENGTH, settings)
  same, lost = count_recovered(content, located, split)
  count, name = len(split.ids), os.path.basename(path)
  print(
    f'{name}: {count:,} questions, {split.size / count:.3f} windows each; '
    f'answers recovered: {same / count:.2%}'
  )
  for text, found in lost[:3]:
    print(f'  {text!r} becomes {found!r}')
  good = not lowercase or same / count >= _LEAST
  if given.transformers:
    job = {'path': path, 'vocab': vocab, 'lowercase': lowercase}
    other = run_theirs(given.transformers, folder, **job)
    good &= compare(split, other)
  return good


def count_recovered(content, located, split):
  """Returns (answers recovered exactly, [(answer, what is found)])."""
  from bert_jax.finetuning.spans import span_data, span_windows

  spans, _ = span_data.find_spans(content, located)
  made = split.windows
  labels = span_windows.label(made, spans)
  found = {}
  for row in np.flatnonzero(labels[:, 0]):
    question = int(made.questions[row])
    shift = made.tokens[row] - made.encoded.firsts[row]
    first, last = labels[row] + shift
    passage = int(split.passage_of[question])
    begin, end = located[passage].begins[first], located[passage].ends[last]
    found[question] = split.passages[passage][begin:end]
  same, lost = 0, []
  for number, answers in enumerate(split.answers):
    text = found.get(number)
    if text == answers[0]:
      same += 1
    else:
      lost.append((answers[0], text))
  return same, lost


def compare(split, other):
  """Prints whether the windows are theirs; returns it."""
  made = split.windows
  compared = np.isin(made.questions, other['questions'])
  bounds = np.stack(
    [made.encoded.ends - made.encoded.lengths, made.encoded.ends]
  )
  ours = [made.encoded.ids[a:b] for a, b in bounds.T[compared]]
  rows = np.split(other['ids'], other['ends'][:-1])
  if made.questions[compared].tolist() != other['questions'].tolist():
    print(f'  FAIL: {len(ours):,} windows, transformers has {len(rows):,}')
    return False
  differ = sum(
    not np.array_equal(a, b) for a, b in zip(ours, rows, strict=True)
  )
  left = len(split.ids) - len(set(other['questions'].tolist()))
  print(
    f'  transformers: {len(rows):,} windows, {differ} differ; {left} questions '
    f'of more than {_QUERY} tokens are not compared'
  )
  return not differ


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data')
  parser.add_argument('--uncased', metavar='VOCAB')
  parser.add_argument('--multilingual', metavar='VOCAB')
  parser.add_argument('--transformers', metavar='PYTHON')
  parser.add_argument('--job', help=argparse.SUPPRESS)
  given = parser.parse_args()
  if given.job:
    return theirs(given.job)
  if not (given.data and given.uncased and given.multilingual):
    parser.error('--data, --uncased and --multilingual are needed.')
  data = os.path.abspath(given.data)
  jobs = [(os.path.join(data, 'dev-v1.1.json'), given.uncased, True)]
  for pattern in ('KorQuAD_v1.0_dev.json', 'xquad/*.json'):
    found = sorted(glob.glob(os.path.join(data, pattern)))
    jobs += [(path, given.multilingual, False) for path in found]
  jobs = [job for job in jobs if os.path.exists(job[0])]
  with tempfile.TemporaryDirectory() as folder:
    good = [
      check_file(given, path, os.path.abspath(vocab), lowercase, folder)
      for path, vocab, lowercase in jobs
    ]
  print('PASS' if good and all(good) else 'FAIL')
  return int(not (good and all(good)))


if __name__ == '__main__':
  sys.exit(main())
