"""From a dataset on the hub to a model, and from its name there to a domain.

  python benchmarks/proofs/hub.py --folder=NEW

A server on this machine stands in for the Hugging Face hub. It has two sets of
Parquet files: prose that comes with Python, and what of it is about networks. From
an empty folder, one command makes a vocabulary, data and a model of the first; the
export is loaded by transformers (also its weights, if torch is installed) and put on
the hub; a second command adapts that model, by its name, to the second. Takes three
minutes on two cores.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pyarrow
from pyarrow import parquet

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bert_jax.corpus import prose  # noqa: E402
from tests import hub_server  # noqa: E402

DOMAIN = re.compile(r'socket|server|http|connection', re.IGNORECASE)
LOAD = """
import importlib.util, sys, transformers
folder, text = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
print(transformers.AutoConfig.from_pretrained(folder).architectures, end=' ')
print(tokenizer.tokenize(text))
if importlib.util.find_spec('torch'):
  fill = transformers.pipeline('fill-mask', folder)
  print([x['token_str'] for x in fill(f'{text} [MASK] .')])
"""


def write_sets(hub):
  """Puts both datasets on the hub, the first in two files."""
  texts = ['\n'.join(x.paragraphs) for x in prose.read_documents()]
  near = [text for text in texts if len(DOMAIN.findall(text)) > 3]
  rest = [text for text in texts if not DOMAIN.search(text)]
  parts = {'docs': (rest[::2], rest[1::2]), 'network': (near,)}
  for name, files in parts.items():
    content = {}
    for k, some in enumerate(files):
      sink = pyarrow.BufferOutputStream()
      parquet.write_table(pyarrow.table({'text': some}), sink)
      content[f'data/part-{k}.parquet'] = sink.getvalue().to_pybytes()
    hub.commit(f'datasets/we/{name}', content)
    print(f'hub: we/{name}, {sum(map(len, files)):,} documents', flush=True)


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--folder', required=True, help='a folder to make')
  folder = pathlib.Path(parser.parse_args().folder)
  folder.mkdir()  # fails if it exists

  def run(*command):
    shown = [x if '\n' not in x else 'LOAD' for x in command]
    print('\n$ python', shlex.join(shown), flush=True)
    subprocess.run([sys.executable, *command], check=True, env=environment)

  with hub_server.running() as (hub, address):
    environment = {
      **os.environ,
      'HF_ENDPOINT': address,
      'PYTHONPATH': str(ROOT),
    }
    environment['HF_HOME'] = str(folder / 'cache')
    write_sets(hub)
    first, second = folder / 'first', folder / 'second'
    general = 'hf://datasets/we/docs/data/*.parquet'
    run(
      *('-m', 'bert_jax.main', '--config=configs/tiny.py:steps=300'),
      *(f'--config.data.input={general}', f'--workdir={first}'),
    )
    run('-c', LOAD, f'{first}/export', 'the server closes the socket')
    files = {x.name: x.read_bytes() for x in (first / 'export').iterdir()}
    hub.commit('models/we/bert', files)
    run(
      *('-m', 'bert_jax.main', f'--workdir={second}'),
      '--config=configs/domain.py:steps=100,seq_length=64,max_predictions=10',
      *('--config.init_from=hf:we/bert', '--config.data.add_words=50'),
      '--config.data.input=hf://datasets/we/network/data/*.parquet',
      f'--config.data.general={general}',
    )
    run('-c', LOAD, f'{second}/export', 'the server closes the socket')


if __name__ == '__main__':
  main()
