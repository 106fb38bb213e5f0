"""Tests of datasets on the Hugging Face hub, of which a stand-in runs here."""

import json
import subprocess
import sys

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax import errors
from bert_jax.data import manifest_file
from bert_jax.inference import source
from bert_jax.tokenization import tokenizer
from tests import hub_server
from tests.data import preparation

_READ = """
import collections, sys
from bert_jax import errors
from bert_jax.corpus import sources
from bert_jax.runtime import hub
hub._PAUSES = 0, 0
for given in sys.argv[1:]:
  try:
    groups = sources.plan(given.split(','), 'paragraphs', 'text')
    parts = [part for group in groups for part in group]
    counts = [collections.Counter()] * 2
    texts = [x.paragraphs for part in parts for x in
             sources.read_documents(part, 'paragraphs', 'text', *counts)]
    print(hash(str(texts)), len(texts), sorted({x.path for x in parts}))
  except errors.UserError as error:
    print(error)
"""
_FETCH = """
import os, sys
from bert_jax.runtime import hub
for given in sys.argv[1:]:
  folder, name = hub.fetch_model(given)
  print(name, sorted(os.listdir(folder)))
"""


@pytest.fixture
def read(tmp_path):
  """Returns (hub, local folder, function that runs a program with arguments)."""
  texts = [f'Text {k}.' for k in range(3000)]
  table = pyarrow.table({'text': texts, 'id': range(3000)})
  parquet.write_table(table, tmp_path / 'a.parquet', row_group_size=500)
  (tmp_path / 'b.txt').write_text('One.\n\nTwo.\n')
  with hub_server.running() as (hub, address):

    def run(*given, command=('-c', _READ), **more):
      """Returns the lines that it prints, or the last line of its error."""
      environment = {'HF_ENDPOINT': address, 'HF_HOME': str(tmp_path / 'home')}
      environment |= {'PATH': '', 'PYTHONHASHSEED': '0'}
      done = subprocess.run(
        [sys.executable, *command, *given],
        env={**environment, 'PYTHONPATH': ':'.join(sys.path), **more},
        capture_output=True,
        text=True,
      )
      wrong = done.stderr.splitlines()[-1:]
      return wrong if done.returncode else done.stdout.splitlines()

    files = {
      f'data/{x}': (tmp_path / x).read_bytes() for x in ('a.parquet', 'b.txt')
    }
    hub.commit('datasets/we/texts', files)
    yield hub, tmp_path, run


def test_files_of_a_commit_are_those_on_disk(read):
  hub, folder, run = read
  old = hub.revisions['datasets/we/texts']['main']
  all_files = 'hf://datasets/we/texts/data/*'
  here, there = run(f'{folder}/a.parquet,{folder}/b.txt', all_files)
  names = [
    f'hf://datasets/we/texts@{old}/data/{x}' for x in ('a.parquet', 'b.txt')
  ]
  texts, _, _ = here.partition(' [')
  assert there == f'{texts} {names}' and texts.endswith(' 3002')
  hub.commit('datasets/we/texts', {'data/a.parquet': b''})
  revisions = 'refs/convert/parquet', 'v1'
  for revision in revisions:
    hub.revisions['datasets/we/texts'][revision] = old
  given = [f'hf://datasets/we/texts@{x}/data/*' for x in revisions]
  assert run(','.join(names), *given) == [there] * 3


def test_what_is_not_there_or_needs_a_token_is_said_in_one_line(read):
  hub, _, run = read
  given = 'none/data/*', 'texts@v9/data/*', 'texts/*.json', 'texts'
  lines = run(*(f'hf://datasets/we/{x}' for x in given))
  for line, words in zip(
    lines,
    (
      "none/data/*' cannot be found: ",
      'cannot be found: ',
      'names no file',
      'is not of the form hf://datasets/OWNER/NAME/',
    ),
    strict=True,
  ):
    assert words in line
  hub.token = 'hf_secret'
  [line] = run('hf://datasets/we/texts/data/*')
  assert 'log in by: hf auth login' in line and 'hf_secret' not in line
  [line] = run('hf://datasets/we/texts/data/*', HF_TOKEN='hf_secret')
  assert ' 3002 ' in line


def test_a_busy_or_breaking_hub_is_asked_again(read):
  hub, _, run = read
  left = {'/api/datasets/we/texts/revision/': 1, '/api/datasets': 2, '/cdn/': 2}

  def fault(request):
    for path, times in left.items():
      if request.path.startswith(path) and times:
        left[path] -= 1
        if path == '/cdn/' and times == 1:  # cut in the middle
          request.send_response(206)
          request.send_header('Content-Length', '50000')
          request.end_headers()
          request.wfile.write(b'PAR1')
          request.close_connection = True
        else:
          hub_server.send(request, b'', 429, Retry_After='0')
        return True
    return False

  hub.fault = fault
  [line] = run('hf://datasets/we/texts/data/*')
  assert ' 3002 ' in line


def test_prepared_data_name_their_commit_and_need_no_network(read):
  hub, folder, run = read
  words = [
    *tokenizer.SPECIAL,
    *'text.0123456789',
    *(f'##{k}' for k in range(10)),
  ]
  (folder / 'vocab.txt').write_text('\n'.join([*words, 'text']))
  given = 'hf://datasets/we/texts/data/a.parquet'
  command = [
    *('-m', 'bert_jax.data.prepare', f'--input={given}', '--min_chars=0'),
    *(f'--vocab={folder}/vocab.txt', f'--output={folder}/data', '--workers=0'),
    *('--layout=sentences', '--max_seq_length=32', '--heldout=0.1'),
  ]
  run(command=command)
  [read_input] = manifest_file.read(f'{folder}/data')['inputs']
  commit = hub.revisions['datasets/we/texts']['main']
  path = f'hf://datasets/we/texts@{commit}/data/a.parquet'
  size = (folder / 'a.parquet').stat().st_size
  assert (read_input['input'], read_input['documents']) == (given, 3000)
  assert read_input['files'] == [{'path': path, 'bytes': size, 'sha256': None}]
  hub.commit('datasets/we/texts', {'data/a.parquet': b''})
  hub.asked.clear()
  assert 'error' not in run(command=command)[-1] and hub.asked == []


def test_a_model_is_fetched_by_name_and_offline_from_the_cache(read):
  hub, _, run = read
  names = ['config.json', 'model.safetensors', 'vocab.txt']
  files = {name: b'x' for name in (*names, 'flax_model.msgpack', 'README.md')}
  commit = hub.commit('models/we/tiny', files)
  fetch = '-c', _FETCH
  there = [f'hf:we/tiny@{commit} {names}']
  assert run('hf:we/tiny', command=fetch) == there
  assert not [x for x in hub.asked if 'flax' in x or 'README' in x]
  again = run(f'hf:we/tiny@{commit}', command=fetch, HF_HUB_OFFLINE='1')
  assert again == there
  [wrong] = run('hf:we/none', command=fetch)
  assert 'hf:we/none cannot be fetched: ' in wrong
  with pytest.raises(errors.UserError, match='mean hf:we/tiny, on the Hugging'):
    source.read('we/tiny')


@pytest.mark.slow
def test_a_set_becomes_a_model_and_that_one_of_a_domain_by_their_names(read):
  hub, folder, run = read
  preparation.write_corpus(folder / 'text')
  texts = (folder / 'text').read_text().split('\n\n')
  for name, old in ('docs', 'bird'), ('hearts', 'Aorta'):
    table = pyarrow.table({'text': [x.replace('bird', old) for x in texts]})
    parquet.write_table(table, folder / name)
    content = {'data/a.parquet': (folder / name).read_bytes()}
    hub.commit(f'datasets/we/{name}', content)
  docs, hearts = (
    f'hf://datasets/we/{x}/data/*.parquet' for x in ('docs', 'hearts')
  )

  def train(workdir, arguments, **fields):
    fields = {'data.layout': 'sentences', 'data.min_chars': 0, **fields}
    given = [f'--config.{name}={x}' for name, x in fields.items()]
    command = '-m', 'bert_jax.main', f'--workdir={workdir}'
    more = {'JAX_PLATFORMS': 'cpu'}
    *_, last = run(f'--config={arguments}', *given, command=command, **more)
    assert 'rror' not in last, last
    return workdir / 'export'

  size = 'smoke,steps=2,num_layers=1,hidden_size=8,mlp_size=8,vocab_size=120'
  export = train(folder / 'x', f'tiny:{size}', **{'data.input': docs})
  files = {x.name: x.read_bytes() for x in export.iterdir()}
  commit = hub.commit('models/we/bert', files)
  export = train(
    folder / 'y',
    'domain:steps=2,seq_length=32,max_predictions=3,batch_size=8',
    **{'init_from': 'hf:we/bert', 'data.add_words': 1},
    **{'data.input': hearts, 'data.general': docs},
  )
  assert (export / 'vocab.txt').read_text().splitlines()[-1] == 'aorta'
  config = json.loads((folder / 'y' / 'config.json').read_text())
  assert config['init_from'] == f'hf:we/bert@{commit}'
