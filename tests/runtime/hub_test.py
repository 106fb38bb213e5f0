"""Tests of datasets on the Hugging Face hub, of which a stand-in runs here."""

import subprocess
import sys

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.data import manifest_file
from bert_jax.tokenization import tokenizer
from tests import hub_server, models

_READ = """
import collections, sys
from bert_jax.corpus import sources
groups = sources.plan(sys.argv[1].split(','), 'paragraphs', 'text')
ranges = [part for group in groups for part in group]
for part in ranges:
  for x in sources.read_documents(part, 'paragraphs', 'text', *[collections.Counter()] * 2):
    print(x.paragraphs)
print(sorted({x.path for x in ranges}), file=sys.stderr)
"""


@pytest.fixture
def read(tmp_path):
  """Returns (hub, local folder, function that reads inputs in a new process)."""
  texts = [f'Text {k}.' for k in range(3000)]
  table = pyarrow.table({'text': texts, 'id': range(3000)})
  parquet.write_table(table, tmp_path / 'a.parquet', row_group_size=500)
  (tmp_path / 'b.txt').write_text('One.\n\nTwo.\n')
  with hub_server.running() as (hub, address):

    def run(given, *command, **more):
      environment = {'HF_ENDPOINT': address, 'HF_HOME': str(tmp_path / 'home')}
      return subprocess.run(
        [sys.executable, *(command or ('-c', _READ, given))],
        env={
          **environment,
          'PATH': '',
          'PYTHONPATH': ':'.join(sys.path),
          **more,
        },
        capture_output=True,
        text=True,
      )

    files = {
      f'data/{x}': (tmp_path / x).read_bytes() for x in ('a.parquet', 'b.txt')
    }
    hub.commit('datasets/we/texts', files)
    yield hub, tmp_path, run


def test_files_of_a_commit_are_those_on_disk(read):
  hub, folder, run = read
  here = run(f'{folder}/a.parquet,{folder}/b.txt')
  old = hub.revisions['datasets/we/texts']['main']
  there = run('hf://datasets/we/texts/data/*')
  assert there.stdout == here.stdout and here.stdout.count('\n') == 3002
  names = [
    f'hf://datasets/we/texts@{old}/data/{x}' for x in ('a.parquet', 'b.txt')
  ]
  assert there.stderr == f'{names}\n'
  hub.commit('datasets/we/texts', {'data/a.parquet': b''})
  again = run(','.join(names))
  assert (again.stdout, again.stderr) == (here.stdout, there.stderr)
  for revision in ('refs/convert/parquet', 'v1'):
    hub.revisions['datasets/we/texts'][revision] = old
    again = run(f'hf://datasets/we/texts@{revision}/data/*')
    assert (again.stdout, again.stderr) == (here.stdout, there.stderr)


def test_a_token_is_used_and_asked_for(read):
  hub, _, run = read
  hub.token = 'hf_secret'
  refused = run('hf://datasets/we/texts/data/*')
  line = refused.stderr.splitlines()[-1]
  assert 'log in by: hf auth login' in line and 'hf_secret' not in line
  given = run('hf://datasets/we/texts/data/*', HF_TOKEN='hf_secret')
  assert given.stdout.count('\n') == 3002


@pytest.mark.parametrize(
  'given, words',
  [
    ('hf://datasets/we/none/data/*', "none/data/*' cannot be found: "),
    ('hf://datasets/we/texts@v9/data/*', 'cannot be found: '),
    ('hf://datasets/we/texts/*.json', 'names no file'),
    ('hf://datasets/we/texts', 'is not of the form hf://datasets/OWNER/NAME/'),
  ],
)
def test_what_is_not_there_is_said_in_one_line(read, given, words):
  _, _, run = read
  assert words in run(given).stderr.splitlines()[-1]


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
  there = run('hf://datasets/we/texts/data/*')
  assert there.stdout.count('\n') == 3002, there.stderr


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
  made = run('', *command)
  assert not made.returncode, made.stderr
  [read_input] = manifest_file.read(f'{folder}/data')['inputs']
  commit = hub.revisions['datasets/we/texts']['main']
  path = f'hf://datasets/we/texts@{commit}/data/a.parquet'
  size = (folder / 'a.parquet').stat().st_size
  assert (read_input['input'], read_input['documents']) == (given, 3000)
  assert read_input['files'] == [{'path': path, 'bytes': size, 'sha256': None}]
  hub.commit('datasets/we/texts', {'data/a.parquet': b''})
  hub.asked.clear()
  again = run('', *command)
  assert (again.returncode, hub.asked) == (0, [])


def test_a_model_by_name_is_read_as_its_folder_and_offline_from_the_cache(read):
  hub, folder, run = read
  path = folder / 'model'
  models.export_to(path)
  files = {x.name: x.read_bytes() for x in path.iterdir()}
  commit = hub.commit('models/we/tiny', {**files, 'flax_model.msgpack': b'no'})

  def fill(model, **more):
    command = '-m', 'bert_jax.fill_mask', f'--model={model}', 'the [MASK] e'
    return run('', *command, **more)

  here, there = fill(path), fill('hf:we/tiny')
  assert there.stdout == here.stdout and 'the [MASK] e' in here.stdout
  assert not [x for x in hub.asked if 'flax' in x or 'README' in x]
  again = fill(f'hf:we/tiny@{commit}', HF_HUB_OFFLINE='1')
  assert again.stdout == here.stdout
  wrong = fill('hf:we/none')
  assert 'hf:we/none cannot be fetched: ' in wrong.stderr.splitlines()[-1]
  assert wrong.returncode == 1
  wrong = fill('we/tiny')
  assert wrong.stderr.endswith(
    'Did you mean hf:we/tiny, on the Hugging Face hub?\n'
  )
