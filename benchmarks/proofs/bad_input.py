"""Checks the errors for wrong input, and that nothing is lost.

  python benchmarks/proofs/bad_input.py

Runs the real commands in a temporary folder. Each case must end with one clear
line and a nonzero exit code, or recover and say so. The case of a full disk
needs permission to mount a tmpfs; without it, it is skipped with a message.
Prints a verdict; the exit code is 1 if a case failed. Takes about five minutes
on two cores.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
SMOKE = '--config=' + os.path.join(ROOT, 'configs/tiny.py:smoke')


def run(*arguments, devices=1, module='bert_jax.main'):
  """Runs a command; returns (exit code, stdout, stderr)."""
  env = {
    **os.environ,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}',
    'PYTHONPATH': ROOT,
  }
  command = [sys.executable, '-m', module, *arguments]
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  return done.returncode, done.stdout, done.stderr


class Cases:
  """Counts and prints the verdict of each case."""

  def __init__(self):
    self.failed = []

  def show(self, name, ok, text):
    print(f'{"ok  " if ok else "FAIL"} {name}\n       {text}', flush=True)
    if not ok:
      self.failed.append(name)

  def error(self, name, result, *words):
    """Expects one line on stderr that begins with 'error:'."""
    code, _, stderr = result
    lines = [x for x in stderr.splitlines() if not x.startswith(('I', 'W'))]
    ok = code != 0 and len(lines) == 1 and lines[0].startswith('error: ')
    ok = ok and all(word in stderr for word in words)
    self.show(name, ok, f'exit {code}: ' + '\n'.join(lines)[-6000:])


def fingerprints(stdout):
  return [
    line.rpartition('fingerprint=')[2].split()[0]
    for line in stdout.splitlines()
    if line.startswith('checkpoint at') and 'fingerprint=' in line
  ]


def array_files(workdir, step):
  """Returns the array data files of a checkpoint, largest first."""
  found = []
  top = os.path.join(workdir, 'checkpoints', str(step), 'state')
  for root, _, names in os.walk(top):
    if os.path.basename(root) == 'd':
      found += [os.path.join(root, name) for name in names]
  return sorted(found, key=os.path.getsize, reverse=True)


def flip_bit(path, at):
  with open(path, 'r+b') as file:
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 1]))


def check_text(cases, scratch):
  """Checks input that cannot be used."""

  def with_text(name, content):
    path = os.path.join(scratch, f'{name}.txt')
    with open(path, 'wb') as file:
      file.write(content)
    workdir = os.path.join(scratch, name)
    return run(SMOKE, f'--workdir={workdir}', f'--config.data.input={path}')

  missing = run(
    SMOKE,
    f'--workdir={scratch}/missing',
    f'--config.data.input={scratch}/no_such_file.txt',
  )
  cases.error('missing file', missing, 'no_such_file.txt')
  cases.error('empty corpus', with_text('empty', b' \n\n'), 'no text')
  one = with_text('one', b'A first sentence of some words. A second one.\n' * 2)
  cases.error('one document', one, '1 document')
  wide = 'Good text, but not in UTF-8.\n\n' * 9
  utf16 = with_text('utf16', wide.encode('utf-16'))
  cases.error('UTF-16', utf16, 'utf16.txt', 'iconv')


def check_config(cases, scratch, workdir):
  """Checks configs that do not fit vocabulary, devices or workdir."""
  data = os.path.join(workdir, 'data')
  use = f'--config.data.dir={data}'
  vocab = os.path.join(data, 'vocab.txt')
  long = run(SMOKE + ',seq_length=1024', f'--workdir={scratch}/long', use)
  cases.error('rows longer than the positions', long, 'max_positions=512')
  result = run(
    SMOKE + ',vocab_size=1400',
    f'--workdir={scratch}/v1',
    f'--config.data.vocab={vocab}',
  )
  cases.error('vocabulary of another size', result, '1500', '1400')
  copy = os.path.join(scratch, 'other_vocabulary')
  shutil.copytree(data, copy)
  with open(os.path.join(copy, 'vocab.txt'), encoding='utf-8') as file:
    words = file.read().splitlines()
  words[-1], words[-2] = words[-2], words[-1]
  with open(os.path.join(copy, 'vocab.txt'), 'w', encoding='utf-8') as file:
    file.write('\n'.join(words) + '\n')
  result = run(SMOKE, f'--workdir={scratch}/v2', f'--config.data.dir={copy}')
  cases.error('vocabulary of another run', result, 'vocab.txt')
  result = run(
    SMOKE + ',batch_size=6', f'--workdir={scratch}/d4', use, devices=4
  )
  cases.error('batch not divisible by devices', result, 'multiple of 4')
  result = run(SMOKE + ',learning_rate=0.5', f'--workdir={workdir}')
  cases.error('workdir of another config', result, 'learning_rate')


def check_checkpoints(cases, scratch, workdir, expected):
  """Checks damaged checkpoints."""
  copy = os.path.join(scratch, 'flipped')
  shutil.copytree(workdir, copy)
  path = array_files(copy, 12)[0]
  flip_bit(path, os.path.getsize(path) // 2)
  code, stdout, _ = run(SMOKE, f'--workdir={copy}')
  ok = code == 0 and 'checkpoint 12 is bad' in stdout
  ok = ok and 'resumed at step 6' in stdout and expected in stdout
  said = [x for x in stdout.splitlines() if 'is bad' in x or 'resumed' in x]
  name = 'one flipped bit: named, skipped, same result'
  cases.show(name, ok, '\n       '.join(said))

  copy = os.path.join(scratch, 'all_bad')
  shutil.copytree(workdir, copy)
  for step in (6, 12):
    for path in array_files(copy, step):
      os.truncate(path, os.path.getsize(path) // 2)
  result = run(SMOKE, f'--workdir={copy}')
  cases.error('all checkpoints corrupted', result, 'start_over=True')
  kept = sorted(os.listdir(os.path.join(copy, 'checkpoints')))
  cases.show('... and they are left in place', '12' in kept, str(kept))
  code, stdout, _ = run(
    SMOKE, f'--workdir={copy}', '--config.checkpoint.start_over=True'
  )
  moved = sorted(os.listdir(os.path.join(copy, 'checkpoints_bad')))
  ok = code == 0 and moved == ['12', '6'] and expected in stdout
  cases.show('... and start_over moves them aside', ok, str(moved))


def check_full_disk(cases, scratch, data):
  """Checks a disk that fills up while checkpoints are written."""
  disk = os.path.join(scratch, 'disk')
  os.makedirs(disk)
  mount = ['mount', '-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', disk]
  if subprocess.run(mount, capture_output=True).returncode:
    print('skip full disk: mounting a tmpfs is not allowed here')
    return
  try:
    _fill_disk(cases, disk, data)
  finally:
    subprocess.run(['umount', disk], check=False)


def _fill_disk(cases, disk, data):
  workdir, junk = os.path.join(disk, 'run'), os.path.join(disk, 'junk')
  config = SMOKE + ',steps=120'
  arguments = (config, f'--workdir={workdir}', f'--config.data.dir={data}')
  checkpoints = os.path.join(workdir, 'checkpoints')

  def fill():
    while not os.path.exists(os.path.join(checkpoints, '12')):
      time.sleep(0.01)
    try:
      with open(junk, 'wb', buffering=0) as file:
        while file.write(b'\0' * 4096):
          pass
    except OSError:  # full; leave room for the log, not for a checkpoint
      os.truncate(junk, os.path.getsize(junk) - (1 << 18))

  filler = threading.Thread(target=fill, daemon=True)
  filler.start()
  cases.error('full disk during a save', run(*arguments), 'cannot save')
  steps = sorted(int(n) for n in os.listdir(checkpoints) if n.isdigit())
  left = [n for n in os.listdir(checkpoints) if not n.isdigit()]
  name = '... the older checkpoint is intact, no half one lies about'
  cases.show(name, bool(steps) and not left, f'{steps} {left}')
  os.remove(junk)
  code, stdout, _ = run(*arguments)
  said = [x for x in stdout.splitlines() if x.startswith('resumed')]
  cases.show('... and the run resumes', code == 0 and said, str(said))


def main():
  """Runs all cases."""
  cases = Cases()
  with tempfile.TemporaryDirectory() as scratch:
    workdir = os.path.join(scratch, 'good')
    code, stdout, stderr = run(SMOKE, f'--workdir={workdir}')
    cases.show('a good run', code == 0, f'exit {code} {stderr[-300:]}')
    if code:
      return 1
    expected = fingerprints(stdout)[-1]
    check_text(cases, scratch)
    check_config(cases, scratch, workdir)
    check_checkpoints(cases, scratch, workdir, expected)
    check_full_disk(cases, scratch, os.path.join(workdir, 'data'))
  print(f'verdict: {"FAILED " + str(cases.failed) if cases.failed else "ok"}')
  return 1 if cases.failed else 0


if __name__ == '__main__':
  sys.exit(main())
