"""Splits pages of WikiExtractor into those of a domain and all others.

python benchmarks/measure/domain_text.py --pages='enwiki/*/wiki_*' --output=FOLDER \\
  --words='disease,patients,symptoms'

A page belongs to the domain if at least one of a hundred of its words, and five of
them, begin with one of `words`. FOLDER gets domain.jsonl and general.jsonl, in
which domain pages are not.
"""

import glob
import json
import os
import re

from absl import app, flags

_PAGE = re.compile(r'<doc id="[^"]*"[^>]*>\n(.*?)\n</doc>', re.DOTALL)

flags.DEFINE_string('pages', None, 'Files of pages, a glob.')
flags.DEFINE_list('words', None, 'The beginnings of the words of the domain.')
flags.DEFINE_string('output', None, 'A folder.')
flags.mark_flags_as_required(['pages', 'words', 'output'])


def is_of_domain(text: str, begins: tuple[str, ...]) -> bool:
  words = text.lower().split()
  count = sum(word.startswith(begins) for word in words)
  return count >= max(5, len(words) / 100)


def main(_):
  f = flags.FLAGS
  os.makedirs(f.output, exist_ok=True)
  paths = [os.path.join(f.output, x) for x in ('general.jsonl', 'domain.jsonl')]
  with open(paths[0], 'w') as general, open(paths[1], 'w') as domain:
    for path in sorted(glob.glob(f.pages)):
      with open(path, encoding='utf-8') as file:
        for page in _PAGE.findall(file.read()):
          out = domain if is_of_domain(page, tuple(f.words)) else general
          out.write(json.dumps({'text': page}, ensure_ascii=False) + '\n')
  for path in paths:
    print(f'{path}: {os.path.getsize(path) / 1e6:.1f} MB')


if __name__ == '__main__':
  app.run(main)
