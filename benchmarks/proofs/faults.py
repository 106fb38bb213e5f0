"""The fault matrix: does to a run what can happen to it, and measures the rest.

  python benchmarks/proofs/faults.py --write
  python benchmarks/proofs/faults.py --only=kill_moments,sigterm_200
  python benchmarks/proofs/faults.py --list

Each row of docs/faults.md is measured in a process of its own, two at a time; a
small model is trained on made-up text. Most rows compare with an uninterrupted
run: last fingerprint, every loss, every byte of the export. --write puts what
was measured into the tables of docs/faults.md. The rows of full and
read-only disks need permission to mount a tmpfs, those of buckets the extra
`test`. The exit code is 1 unless every row is ok. Takes about twelve minutes on two
idle cores.
"""

import argparse
import os
import pathlib
import queue
import resource
import sys
import tempfile
import threading
import time
import traceback

import fault as fault_lib
import small_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / 'docs' / 'faults.md'
LIMIT = 600  # seconds of a row
_MISSING = 'not measured'
_TICKS = os.sysconf('SC_CLK_TCK')


def list_groups() -> dict[str, tuple[fault_lib.Fault, ...]]:
  """Returns {heading: rows}."""
  # Here, so that processes that are forked for a row of another need not wait.
  import faults_bucket
  import faults_checkpoint
  import faults_data
  import faults_disk
  import faults_full
  import faults_hosts
  import faults_input
  import faults_process

  return {
    'The process': faults_process.FAULTS,
    'Checkpoints': faults_checkpoint.FAULTS,
    'Other files': faults_data.FAULTS,
    'The disk': faults_full.FAULTS + faults_disk.FAULTS,
    'The bucket': faults_bucket.FAULTS,
    'Input and numbers': faults_input.FAULTS,
    'Hosts': faults_hosts.FAULTS,
  }


def measure(name, base, folder, pipe):
  """Measures a row, in its own process; sends (state, text)."""
  small_run.redirect(os.path.join(folder, 'output'))
  small_run.end_with_server()
  os.chdir(folder)
  try:
    [fault] = [
      x for rows in list_groups().values() for x in rows if x.name == name
    ]
    result = 'ok', fault.measure(base, folder)
  except fault_lib.Skipped as error:
    result = 'skipped', str(error)
  except fault_lib.Broken as error:
    result = 'BROKEN', str(error)
  except BaseException:
    result = 'BROKEN', traceback.format_exc()
  pipe.send((*result, os.getppid()))
  pipe.close()
  os._exit(0)  # threads of a broken run may be left


def make_base(scratch):
  """Makes the uninterrupted run, in a process with the rows' environment."""
  context = small_run.make_context()
  pipe, theirs = context.Pipe(duplex=False)
  process = context.Process(target=_make_base, args=(scratch, theirs))
  process.start()
  theirs.close()
  base = pipe.recv()
  process.join()
  return base


def _make_base(scratch, pipe):
  small_run.redirect(os.path.join(scratch, 'output'))
  pipe.send(small_run.make_base(scratch))


def run_row(fault, base, scratch) -> tuple[str, str, float, int | None]:
  """Measures a row; returns (state, text, seconds, the fork server)."""
  folder = os.path.join(scratch, fault.name)
  os.mkdir(folder)
  context = small_run.make_context()
  pipe, theirs = context.Pipe(duplex=False)
  process = context.Process(
    target=measure, args=(fault.name, base, folder, theirs)
  )
  begin = time.monotonic()
  process.start()
  theirs.close()
  state, text, server = 'BROKEN', f'no result after {LIMIT} s', None
  try:
    if pipe.poll(LIMIT):
      state, text, server = pipe.recv()
  except EOFError:
    text = 'the process died'
  process.kill()
  process.join()
  if state == 'BROKEN':
    output = os.path.join(folder, 'output')
    if os.path.exists(output):
      with open(output, errors='replace') as file:
        text += f'\n--- its output ends with\n{file.read()[-3000:]}'
  return state, text, time.monotonic() - begin, server


def run_all(faults, base, scratch, jobs: int, note):
  """Measures rows, `jobs` at a time.

  Args:
    faults: the rows.
    base: the run with which they compare.
    scratch: folder for theirs.
    jobs: how many at a time.
    note: is called with {name: (state, text)} after each row.

  Returns:
    ({name: (state, text)}, the fork servers).
  """
  waiting: queue.SimpleQueue = queue.SimpleQueue()
  for fault in faults:
    waiting.put(fault)
  found, servers, lock = {}, set(), threading.Lock()

  def work():
    while True:
      try:
        fault = waiting.get_nowait()
      except queue.Empty:
        return
      state, text, seconds, server = run_row(fault, base, scratch)
      with lock:
        found[fault.name] = state, text
        servers.add(server)
        note(found)
        print(
          f'{len(found):3d}/{len(faults)} {state:7} {fault.name} '
          f'({seconds:.0f} s): {text}',
          flush=True,
        )

  threads = [threading.Thread(target=work) for _ in range(jobs)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return found, servers - {None}


def count_cpu(servers) -> float:
  """Returns the CPU seconds of this process and of all that it started."""
  total = 0.0
  for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
    used = resource.getrusage(who)
    total += used.ru_utime + used.ru_stime
  for server in servers:  # a child of this process that has not ended
    with open(f'/proc/{server}/stat') as file:
      fields = file.read().rpartition(')')[2].split()
    total += sum(map(int, fields[11:15])) / _TICKS
  return total


def make_tables(groups, measured) -> str:
  """Returns the tables of docs/faults.md.

  Args:
    groups: from `list_groups`.
    measured: {name of a row: what was measured}.
  """
  lines = []
  for heading, rows in groups.items():
    lines += ['', f'### {heading}', '']
    lines += [
      '| row | what is done | what is promised | measured |',
      '|---|---|---|---|',
    ]
    for fault in rows:
      result = measured.get(fault.name, _MISSING)
      cells = fault.name, fault.done, fault.promised, result
      cells = (x.replace('|', '/').replace('\n', ' ') for x in cells)
      lines.append(f'| {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'


def write_page(groups, found):
  """Replaces the tables of docs/faults.md, which are its end.

  Rows that were not measured, or are broken, keep what was measured before.
  """
  text = PAGE.read_text(encoding='utf-8')
  rows = [
    x.strip('| ').split(' | ') for x in text.splitlines() if x[:2] == '| '
  ]
  measured = {cells[0]: cells[3] for cells in rows}
  measured |= {
    name: result for name, (state, result) in found.items() if state == 'ok'
  }
  head = text.partition('\n### ')[0].rstrip()
  PAGE.write_text(f'{head}\n{make_tables(groups, measured)}', encoding='utf-8')


def main():
  """Runs the proof."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='names of rows, separated by commas')
  parser.add_argument('--list', action='store_true', help='show the rows')
  parser.add_argument('--write', action='store_true', help='write the page')
  parser.add_argument('--jobs', type=int, default=2, help='rows at a time')
  options = parser.parse_args()
  groups = list_groups()
  faults = [fault for rows in groups.values() for fault in rows]
  if options.only:
    names = options.only.split(',')
    unknown = set(names) - {fault.name for fault in faults}
    if unknown:
      parser.error(f'no row is called {", ".join(unknown)}; see --list')
    faults = [fault for fault in faults if fault.name in names]
  if options.list:
    for fault in faults:
      print(f'{fault.name:20} {fault.done}')
    return 0

  def note(found):
    if options.write:
      write_page(groups, found)

  begin = time.monotonic()
  with tempfile.TemporaryDirectory() as scratch:
    small_run.set_environment(os.path.join(scratch, 'xla'))
    base = make_base(scratch)
    found, servers = run_all(faults, base, scratch, options.jobs, note)
    cpu = count_cpu(servers)
  bad = [name for name, (state, _) in found.items() if state != 'ok']
  print(
    f'verdict: {"FAILED " + ", ".join(bad) if bad else "ok"}, {len(found)} rows '
    f'in {time.monotonic() - begin:.0f} s, {cpu:.0f} s of CPU'
  )
  return 1 if bad else 0


if __name__ == '__main__':
  sys.exit(main())
