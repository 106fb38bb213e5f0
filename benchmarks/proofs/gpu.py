"""Checks values, speed, memory and resuming on one GPU.

  python benchmarks/proofs/gpu.py --torch=PYTHON
  python benchmarks/proofs/gpu.py --parts=values,runs
  python benchmarks/proofs/gpu.py --platform=cpu

Needs one NVIDIA GPU, jax for its CUDA and no network; PYTHON, if given, has
torch and transformers. The parts, each in a process of its own:

  values      attention, a layer and random bits are those of the CPU
  attention   each way to compute attention, memory and time
  packed      tokens/s of packed rows, length 512
  large-128   MFU, speed against PyTorch, memory and time against preflight
  large-512   the same
  base-128    the same, and what deterministic ops cost
  flags       which flags of XLA help
  runs        losses are those of the CPU; checkpoints move both ways
  kill        a killed and resumed run ends with the same bits

The versions of all libraries come first. A call ends after --limit seconds;
the same command again goes on with the parts that have not ended. Verdicts are
in --folder/verdicts.txt as soon as they are known, what parts print is added to
log.txt there. Ends with all verdicts; the exit code is 1 if one is FAIL or LEFT.
--data has the prepared data of earlier calls. With --platform=cpu a tiny model
tries the commands where there is no GPU.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = 'PASS', 'FAIL', 'SKIP', 'verdict'  # that begin a verdict
ENDED = 'DONE'  # begins the last line of a part that need not run again
LEAST = 60  # seconds; with fewer left, no part is begun
PACK = 3
WAYS = 'xla', 'recompute', 'flash'
DETERMINISTIC = 'xla_gpu_deterministic_ops=true'
SHOW = 'import jax; print(jax.devices()[0].device_kind)'
MORE = (
  *('jax-cuda12-plugin', 'jax-cuda13-plugin', 'jaxlib', 'nvidia-cudnn-cu13'),
  *('torch', 'transformers', 'triton'),
)
VERSIONS = f"""
import configparser, importlib.metadata, re, sys
config = configparser.ConfigParser()
config.read({str(ROOT / 'setup.cfg')!r})
wanted = config['options']['install_requires']
print('python', sys.version.split()[0])
for name in [*re.findall('[\\w-]+(?=>)', wanted), *{MORE}]:
  try:
    print(name, importlib.metadata.version(name))
  except importlib.metadata.PackageNotFoundError:
    print('no', name)
"""
PREPARE = (
  'import sys, step_rows as rows; data, *packs = sys.argv[1:]; '
  "[rows.prepare_docs(f'{data}/{n}', -1, int(n)) for n in packs]"
)


def list_parts(args):
  """Returns {name: script and its arguments}."""
  plain, packed = (os.path.join(args.data, name) for name in ('1', str(PACK)))
  torch = [f'--torch={args.torch}'] if args.torch else []

  def step(size, length, rows, *more):
    shape = [f'--size={size}', f'--seq_length={length}', f'--batch={rows}']
    place = ['--gpu']
    if args.platform == 'cpu':
      shape = ['--size=tiny', '--layers=1', f'--seq_length={length}']
      shape += ['--batch=2']
      place = ['--one_at_a_time', '--gathered', '--rounds=2', '--steps=1']
    command = ['measure/step.py', *place, *shape, f'--data={plain}', *more]
    return command

  def other(script, gpu, cpu):
    return [script, *(gpu if args.platform == 'cuda' else cpu)]

  ways = WAYS if args.platform == 'cuda' else WAYS[:2]  # flash is for GPUs
  here = f'--platform={args.platform}'
  tiny = ['--size=tiny', '--seq_length=128']
  return {
    'values': other('proofs/gpu_values.py', [here], [here, *tiny]),
    # One after another, since not all ways fit next to each other.
    'attention': step(
      'large', 512, 16, '--full', '--one_at_a_time', '--ways', *ways
    ),
    'packed': step('base', 512, 32, f'--pack={PACK}', f'--packed={packed}'),
    'large-128': step('large', 128, 128, '--full', *torch),
    'large-512': step('large', 512, 32, '--full', *torch),
    'base-128': step('base', 128, 256, *torch, '--flags', DETERMINISTIC),
    'flags': step('base', 128, 256, '--flags'),
    'runs': ['proofs/gpu_runs.py', here],
    'kill': other('proofs/kill.py', [here, '--kills=4'], [here, '--kills=1']),
  }


def make_environment(platform):
  paths = [str(ROOT), str(ROOT / 'benchmarks' / 'measure')]
  return {
    **os.environ,
    'PYTHONPATH': os.pathsep.join([*paths, os.environ.get('PYTHONPATH', '')]),
    'PYTHONUNBUFFERED': '1',
    'JAX_PLATFORMS': platform,
  }


def ask(python, program, platform):
  """Returns what a program of Python prints; None if it fails."""
  found = subprocess.run(
    [python, '-c', program],
    env=make_environment(platform),
    capture_output=True,
    text=True,
  )
  return None if found.returncode else found.stdout.strip()


class Verdicts:
  """The verdicts of all parts, {name: lines}, in a file that is written whole."""

  def __init__(self, path):
    self.path, self.lines = path, {}
    text = path.read_text() if path.exists() else ''
    for name, line in (x.split(maxsplit=1) for x in text.splitlines()):
      self.lines.setdefault(name, []).append(line)

  def __str__(self):
    pairs = [(name, x) for name, lines in self.lines.items() for x in lines]
    return ''.join(f'{name:10} {line}\n' for name, line in pairs)

  def add(self, name, line):
    lines = self.lines.setdefault(name, [])
    lines += [line] * (line not in lines)
    new = self.path.with_suffix('.new')
    new.write_text(str(self))
    new.replace(self.path)

  def ended(self, name):
    return self.lines.get(name, [''])[-1].startswith(ENDED)


def run(name, command, platform, verdicts, log, limit):
  """Runs a part, showing and keeping what it prints, and its verdicts."""
  start, code = time.monotonic(), None
  # Scripts that use both devices, or leave the GPU to others, set it again.
  process = subprocess.Popen(
    [sys.executable, *command],
    env=make_environment(platform),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    errors='replace',
    process_group=0,
  )
  timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
  timer.start()
  try:
    for line in process.stdout:
      print(line, end='', flush=True)
      print(line, end='', file=log, flush=True)
      if line.startswith(WORDS):
        verdicts.add(name, line.strip())
    code = process.wait()
  finally:
    timer.cancel()
    if process.poll() is None:  # this process was interrupted
      os.killpg(process.pid, signal.SIGKILL)
  seconds = time.monotonic() - start
  if seconds >= limit:
    verdicts.add(name, f'LEFT: cut after {seconds:.0f} s')
    return
  if code and not any(x.startswith('FAIL') for x in verdicts.lines[name]):
    verdicts.add(name, f'FAIL: exit code {code}')
  verdicts.add(name, f'{ENDED} in {seconds:.0f} s')


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--folder', default='gpu', help='for results; default: gpu')
  add('--data', help='for prepared data; default: --folder')
  add('--limit', type=int, default=590, help='seconds; default: 590')
  add('--torch', metavar='PYTHON', help='interpreter with PyTorch')
  add('--parts', help='some of those above, separated by commas')
  add('--platform', default='cuda', choices=['cuda', 'cpu'])
  return parser.parse_args()


def choose(parts, asked):
  """Returns the parts that --parts names."""
  names = asked.split(',') if asked else list(parts)
  unknown = [name for name in names if name not in parts]
  if unknown:
    sys.exit(
      f'error: --parts={asked} has {unknown[0]}; there are {", ".join(parts)}.'
    )
  return {name: parts[name] for name in names}


def main():
  begin, args = time.monotonic(), parse_arguments()
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the part, too
  args.folder = os.path.abspath(args.folder)
  args.data = os.path.abspath(args.data or args.folder)
  parts = choose(list_parts(args), args.parts)
  device = ask(sys.executable, SHOW, args.platform)
  if not device:
    sys.exit(
      'error: jax finds no NVIDIA GPU; install jax[cuda12] or jax[cuda13], or '
      'give --platform=cpu.'
    )
  os.makedirs(args.folder, exist_ok=True)
  verdicts = Verdicts(pathlib.Path(args.folder, 'verdicts.txt'))
  for python in filter(None, (sys.executable, args.torch)):
    found = ask(python, VERSIONS, args.platform) or f'{python} failed'
    verdicts.add('versions', f'{device}: {", ".join(found.splitlines())}')
  print(verdicts)
  commands = {
    name: [str(ROOT / 'benchmarks' / script), *rest]
    for name, (script, *rest) in parts.items()
    if not verdicts.ended(name)
  }
  if any(args.data in word for words in commands.values() for word in words):
    folders = [args.data, '1', str(PACK)]
    commands = {'data': ['-c', PREPARE, *folders], **commands}
  with open(os.path.join(args.folder, 'log.txt'), 'a') as log:
    for name, command in commands.items():
      print(f'\n== {name}: {" ".join(command)}', flush=True)
      verdicts.lines[name] = []
      left = begin + args.limit - time.monotonic()
      if left < LEAST:
        verdicts.add(name, 'LEFT: not begun')
      else:
        platform = 'cpu' if name == 'data' else args.platform
        run(name, command, platform, verdicts, log, left)
  print(f'\n== verdicts after {time.monotonic() - begin:.0f} s\n{verdicts}')
  lines = [x for found in verdicts.lines.values() for x in found]
  return 1 if any(x.startswith(('FAIL', 'LEFT')) for x in lines) else 0


if __name__ == '__main__':
  sys.exit(main())
