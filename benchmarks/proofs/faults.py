"""The fault matrix: does to a run what can happen to it, and measures what follows.

  python benchmarks/proofs/faults.py --write
  python benchmarks/proofs/faults.py --only=kill_moments,full_log
  python benchmarks/proofs/faults.py --list

The rows, what is done and what is promised, are in docs/faults.md. Those that no
test checks are measured here, each in a process of its own, two at a time;
a small model is trained on made-up text. Most compare with an uninterrupted
run: last fingerprint, every loss, every byte of the export. --write puts what
was measured into the page. The rows of full and read-only disks need permission
to mount a tmpfs, those of buckets the extra `test`. The exit code is 1 unless
every row is ok. Takes about ten minutes on two idle cores.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import tempfile
import time
import traceback

import small_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'faults.md'
LIMIT = 600  # seconds of a row


def list_rows() -> dict:
  """Returns {name: (base, empty folder) -> what was measured}.

  They raise `small_run.Broken`, or anything else, if a promise is not kept.
  """
  # Here, so that processes that are forked for a row of another need not wait.
  import faults_disk
  import faults_files
  import faults_process

  return faults_process.ROWS | faults_files.ROWS | faults_disk.ROWS


def read_page() -> dict[str, list[str]]:
  """Returns {name of a row: what is done, promised, measured}."""
  lines = PAGE.read_text(encoding='utf-8').splitlines()
  rows = [x.strip('| ').split(' | ') for x in lines if x[:2] == '| ']
  return {name: cells for name, *cells in rows if name != 'row'}


def write_page(name: str, measured: str):
  """Replaces the last cell of a row of the page."""
  text, (*cells, old) = PAGE.read_text(encoding='utf-8'), read_page()[name]
  measured = measured.replace('|', '/').replace('\n', ' ')
  before, after = (' | '.join([name, *cells, x]) for x in (old, measured))
  text = text.replace(f'| {before} |', f'| {after} |')
  PAGE.write_text(text, encoding='utf-8')


def measure(name, scratch, base, pipe):
  """Measures a row, in its own process, or makes the base; sends the result."""
  folder = os.path.join(scratch, name)
  os.mkdir(folder)
  small_run.redirect(os.path.join(folder, 'output'))
  small_run.end_with_server()
  os.chdir(folder)
  try:
    call = list_rows()[name] if base else small_run.make_base
    result = 'ok', call(base, folder) if base else call(folder)
  except small_run.Skipped as error:
    result = 'skipped', str(error)
  except BaseException as error:
    broken = isinstance(error, small_run.Broken)
    result = 'BROKEN', str(error) if broken else traceback.format_exc()
  pipe.send(result)
  pipe.close()
  os._exit(0)  # threads of a broken run may be left


def run_row(name, scratch, base=None):
  """Measures a row; returns (state, what was measured)."""
  context = small_run.make_context()
  pipe, theirs = context.Pipe(duplex=False)
  process = context.Process(target=measure, args=(name, scratch, base, theirs))
  process.start()
  theirs.close()
  state, found = 'BROKEN', f'no result after {LIMIT} s'
  try:
    if pipe.poll(LIMIT):
      state, found = pipe.recv()
  except EOFError:
    found = 'the process died'
  process.kill()
  process.join()
  output = pathlib.Path(scratch, name, 'output')
  if state == 'BROKEN' and output.exists():
    found += f'\n--- its output ends with\n{output.read_text("utf-8", "replace")[-3000:]}'
  return state, found


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='names of rows, separated by commas')
  parser.add_argument('--list', action='store_true', help='show the rows')
  parser.add_argument('--write', action='store_true', help='write the page')
  parser.add_argument('--jobs', type=int, default=2, help='rows at a time')
  options = parser.parse_args()
  names = list(list_rows())
  if options.only:
    chosen = options.only.split(',')
    if unknown := set(chosen) - set(names):
      parser.error(f'no row is called {", ".join(unknown)}; see --list')
    names = chosen
  if options.list:
    for name, (done, *_) in read_page().items():
      print(f'{name:20} {"" if name in names else "(by a test) "}{done}')
    return 0
  begin, bad = time.monotonic(), []
  with tempfile.TemporaryDirectory() as scratch:
    small_run.set_environment(os.path.join(scratch, 'xla'))
    state, base = run_row('base', scratch)
    if state != 'ok':
      sys.exit(f'error: the uninterrupted run failed: {base}')
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
      waiting = {pool.submit(run_row, x, scratch, base): x for x in names}
      for done in concurrent.futures.as_completed(waiting):
        name, (state, text) = waiting[done], done.result()
        seconds = time.monotonic() - begin
        print(f'{seconds:4.0f} s {state:7} {name}: {text}', flush=True)
        if state != 'ok':
          bad.append(name)
        elif options.write:
          write_page(name, text)
  print(
    f'verdict: {"FAILED " + ", ".join(bad) if bad else "ok"}, {len(names)} rows '
    f'in {time.monotonic() - begin:.0f} s'
  )
  return 1 if bad else 0


if __name__ == '__main__':
  sys.exit(main())
