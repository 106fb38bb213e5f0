"""What launch/worker.sh does for each exit code of the program.

`gcloud` and the program are short scripts here; the bucket is a folder.
"""

import collections
import http.server
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import threading
import time

import pytest

from launch import start

WORKER = os.path.join(start.ROOT, 'launch', 'worker.sh')
DELETED = -signal.SIGKILL  # how a host ends that the cloud takes away
# Copies between the folder of the bucket and others; notes other commands. A
# deletion does what the next line of `deletions` says, and else ends the host.
GCLOUD = r"""#!/usr/bin/env bash
at() { sed "s#^gs://#$BUCKET/#" <<<"$1"; }
echo "$*" >>"$BUCKET/commands"
args=()
for word in "$@"; do
  case $word in
  --if-generation-match=0) absent=1 ;;
  --*) ;;
  *) args+=("$word") ;;
  esac
done
case "${args[0]} ${args[1]}" in
"storage cat") cat "$(at "${args[2]}")" ;;
"storage cp")
  to=$(at "${args[3]}")
  [[ -n ${absent:-} && -e $to ]] && exit 1
  mkdir -p "$(dirname "$to")" && cp "$(at "${args[2]}")" "$to"
  ;;
"delete me too")
  read -r answer <"$BUCKET/deletions" || kill -KILL "$PPID"
  sed -i 1d "$BUCKET/deletions"
  [[ $answer == accepted ]]
  ;;
esac
"""
# Ends with the next code of a list, or hangs until it is told to end.
PROGRAM = r"""#!/usr/bin/env bash
trap 'echo "saved"; exit 143' TERM
echo "arguments: $*"
read -r code <"$BUCKET/codes"
sed -i 1d "$BUCKET/codes"
if [[ $code == hang ]]; then
  while :; do sleep 0.1; done
fi
if [[ $code == +* ]]; then
  echo "{\"step\": ${code#+}, \"steps\": 9}" >"$BUCKET/b/r/status.json"
  code=9
fi
echo "ends with $code"
exit "$code"
"""


@pytest.fixture
def host(tmp_path):
  """Returns a function that starts a host, whose code is installed."""
  if not shutil.which('curl'):
    pytest.skip('curl is not installed')
  bucket, home = tmp_path / 'bucket', tmp_path / 'home'
  (bucket / 'b/r').mkdir(parents=True)
  code = home / 'r/SHA'
  (code / 'env/bin').mkdir(parents=True)
  (code / 'tree').mkdir()
  (code / 'ready').touch()
  (tmp_path / 'bin').mkdir()
  for path, text in (
    (tmp_path / 'bin/gcloud', GCLOUD),
    (code / 'env/bin/python', PROGRAM),
  ):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
  started, served = [], []

  def begin(*codes, seconds=1000, deletions=(), attributes=(), busy=()):
    (bucket / 'codes').write_text(''.join(f'{code}\n' for code in codes))
    (bucket / 'deletions').write_text(''.join(f'{x}\n' for x in deletions))
    job = {'name': 'r', 'job': 'j', 'workdir': 'gs://b/r', 'sha256': 'SHA'}
    job |= {'archive': 'gs://b/x', 'hosts': 1, 'seconds': seconds}
    lines = [f'{key}={value}' for key, value in job.items()]
    lines += ['argument=--a b', "argument=--c='d'"]
    lines += ['delete=gcloud', 'delete=delete', 'delete=me too']
    text = '\n'.join(lines) + '\n'
    served.append(_serve({'bert-jax-job': text, **dict(attributes)}, busy))
    env = {
      **os.environ,
      'PATH': f'{tmp_path}/bin:{os.environ["PATH"]}',
      'BUCKET': str(bucket),
      'BERT_JAX_HOME': str(home),
      'BERT_JAX_PERIOD': '1',
      'GCE_METADATA_HOST': f'127.0.0.1:{served[-1].server_port}',
    }
    process = subprocess.Popen(
      ['bash', WORKER], env=env, start_new_session=True
    )
    started.append(process)
    return process, Files(bucket)

  yield begin
  for process in started:
    if process.poll() is None:
      os.killpg(process.pid, signal.SIGKILL)
      process.wait()
  for server in served:
    server.shutdown()
    server.server_close()


def _serve(attributes, busy) -> http.server.HTTPServer:
  """Answers as a host's metadata server; with 503 first for what is `busy`."""
  refusals = collections.Counter(busy)

  class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
      """Says nothing."""

    def do_GET(self):
      name = self.path.rpartition('/')[2]
      found = attributes.get(name)
      refused, refusals[name] = refusals[name] > 0, refusals[name] - 1
      self.send_response(503 if refused else 404 if found is None else 200)
      self.end_headers()
      self.wfile.write(b'busy' if refused else (found or '').encode())

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  server.daemon_threads = True
  threading.Thread(target=server.serve_forever, daemon=True).start()
  return server


class Files:
  """What a host left in the bucket."""

  def __init__(self, bucket: pathlib.Path):
    self._bucket = bucket

  def read(self, name):
    return (self._bucket / name).read_text()

  @property
  def log(self):
    return self.read('b/r/logs/host-0.log')

  @property
  def end(self):
    return self.read('b/r/launch/j/end').splitlines()

  @property
  def deletions(self):
    return self.read('commands').splitlines().count('delete me too')


def test_exit_code_0_ends_the_launch_and_deletes_the_host(host):
  process, files = host(0)
  assert process.wait(60) == DELETED
  assert files.end[0] == 'reason=done' and files.deletions == 1
  assert "arguments: -m bert_jax.main --a b --c='d'" in files.log


def test_exit_code_1_is_not_tried_again_and_keeps_the_last_lines(host):
  process, files = host(1, 0)
  assert process.wait(60) == DELETED
  assert files.end[0] == 'reason=failed' and files.deletions == 1
  assert 'exit code 1' in files.end[1] and 'ends with 1' in files.end
  assert files.log.count('arguments:') == 1


@pytest.mark.slow
def test_interrupted_program_is_resumed(host):
  process, files = host(143, 130, 0)
  assert process.wait(60) == DELETED
  assert files.end[0] == 'reason=done'
  assert files.log.count('arguments:') == 3


@pytest.mark.slow
def test_crash_is_tried_three_times(host):
  process, files = host(*[9] * 5)
  assert process.wait(120) == DELETED
  assert files.end[0] == 'reason=crashed' and files.deletions == 1
  assert files.log.count('arguments:') == 4


@pytest.mark.slow
def test_progress_resets_the_retries(host):
  process, files = host(9, 9, '+5', 9, 9, 0)
  assert process.wait(120) == DELETED
  assert files.end[0] == 'reason=done'


@pytest.mark.slow
def test_program_is_told_to_save_when_the_time_is_up(host):
  process, files = host('hang', seconds=2)
  assert process.wait(60) == DELETED
  assert files.end[0] == 'reason=out of time' and files.deletions == 1
  assert 'saved' in files.log


def test_program_is_told_to_save_when_somebody_ends_the_launch(host):
  process, files = host('hang')
  _wait_for(lambda: 'arguments:' in files.log)
  path = files._bucket / 'b/r/launch/j'
  path.mkdir(parents=True)
  (path / 'end').write_text('reason=stopped\n')
  assert process.wait(60) == DELETED
  assert files.end == ['reason=stopped'] and files.deletions == 1
  assert 'saved' in files.log


def test_host_that_is_taken_away_lets_the_program_save(host):
  process, files = host('hang')
  _wait_for(lambda: 'arguments:' in files.log)
  process.send_signal(signal.SIGTERM)
  assert process.wait(60) == 143
  assert 'saved' in files.log and files.deletions == 0


@pytest.mark.slow
def test_program_of_an_earlier_start_is_ended_first(host):
  process, files = host('hang', 0)
  _wait_for(lambda: 'arguments:' in files.log)
  process.kill()  # as after a crash of the host's script
  process.wait()
  again, files = host(0)
  assert again.wait(60) == DELETED
  assert 'saved' in files.log and files.end[0] == 'reason=done'


@pytest.mark.slow
def test_deletion_that_has_no_effect_is_asked_for_again(host):
  process, files = host(0, deletions=['refused', 'accepted'])
  assert process.wait(60) == DELETED and files.deletions == 3


@pytest.mark.parametrize(
  'busy',
  ['bert-jax-job', pytest.param('agent-worker-number', marks=pytest.mark.slow)],
)
def test_answer_of_a_busy_metadata_server_is_waited_for(host, busy):
  attributes = {'agent-worker-number': '1'}
  process, files = host(1, attributes=attributes, busy=[busy])
  assert process.wait(60) == 0 and files.deletions == 0
  assert 'host 1 of run r' in files.read('b/r/logs/host-1.log')


def test_hosts_are_numbered_through_all_slices(host):
  attributes = {
    'agent-worker-number': '0',
    'tpu-env': "MEGASCALE_SLICE_ID: '2'",
  }
  process, files = host(1, attributes=attributes)
  assert process.wait(60) == 0 and files.deletions == 0
  assert 'host 2 of run r' in files.read('b/r/logs/host-2.log')


def test_host_without_a_job_does_nothing(host):
  process, files = host(0, attributes={'bert-jax-job': None})
  assert process.wait(60) == 1
  assert not (files._bucket / 'commands').exists()


def test_script_is_clean_for_shellcheck():
  program = shutil.which('shellcheck')
  if not program:
    pytest.skip('shellcheck is not installed')
  done = subprocess.run([program, WORKER], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout


def _wait_for(holds):
  for _ in range(600):
    try:
      if holds():
        return
    except FileNotFoundError:
      pass
    time.sleep(0.05)
  raise TimeoutError
