"""Compares ids of transformers' tokenizer and ours, of an exported model.

python benchmarks/parity/domain_ids.py --model=RUN/export --texts=domain.jsonl,general.jsonl

Takes the first lines of text of the files, of JSON with a field text, and prints how
many differ, and how many have words that were added. The exit code is 1 if any differs.
"""

import json
import sys

import transformers
from absl import app, flags

from bert_jax.inference import source

flags.DEFINE_string('model', None, 'The folder.')
flags.DEFINE_list('texts', None, 'Files.')
flags.DEFINE_integer('lines', 10_000, 'How many lines to compare.')
flags.DEFINE_integer('words', 0, 'Words that were added, the last.')
flags.mark_flags_as_required(['model', 'texts'])


def read_lines(path: str) -> list[str]:
  with open(path, encoding='utf-8') as file:
    texts = [json.loads(line)['text'] for line in file]
  return [line for text in texts for line in text.split('\n') if line.strip()]


def main(_):
  f = flags.FLAGS
  lines = [x for path in f.texts for x in read_lines(path)][: f.lines]
  ours = source.read(f.model).tokenizer
  theirs = transformers.AutoTokenizer.from_pretrained(f.model)
  ids = theirs(lines, add_special_tokens=False)['input_ids']
  here = ours.ids(lines)
  first = ours.size - f.words
  wrong = [x for x, a, b in zip(lines, ids, here, strict=True) if a != b]
  added = sum(any(i >= first for i in x) for x in here)
  print(
    f'{len(lines):,} lines, {added:,} with added words; {len(wrong)} differ'
  )
  for line in wrong[:3]:
    print(repr(line[:200]))
  sys.exit(bool(wrong))


if __name__ == '__main__':
  app.run(main)
