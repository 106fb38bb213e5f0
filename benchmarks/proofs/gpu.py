"""Checks values, speed, memory and resuming on one NVIDIA GPU.

  python benchmarks/proofs/gpu.py --torch=PYTHON
  python benchmarks/proofs/gpu.py --parts=values,runs
  python benchmarks/proofs/gpu.py --platform=cpu

Needs jax for the GPU's CUDA and no network; PYTHON, if given, has torch and
transformers. The parts, each in a process of its own:

  versions    of the libraries
  values      attention, a layer and random bits are those of the CPU
  attention   each way to compute attention in a step, memory and time
  large-128   MFU, memory, and speed against PyTorch
  large-512   the same
  base-128    the same, and what deterministic ops cost
  runs        losses are those of the CPU; checkpoints move both ways
  kill        a killed and resumed run ends with the same bits

What a part prints is in --folder/PART.txt when it has ended; the same command
again goes on with the parts that have not. A call ends after --limit seconds. Ends
with all lines that say PASS, FAIL or verdict; the exit code is 1 if a part failed
or is left. With --platform=cpu a tiny model tries the commands without a GPU.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAYS = 'xla', 'recompute', 'flash'
LEAST = 60  # seconds; with fewer left, no part is begun
PREPARE = 'import sys, step_rows; step_rows.prepare_docs(sys.argv[1], -1)'


def list_parts(args) -> dict[str, list[str]]:
  """Returns {name: arguments of Python}."""
  on_gpu, data = args.platform == 'cuda', args.folder / 'data'
  here, torch = f'--platform={args.platform}', []
  if args.torch:
    torch = [f'--torch={args.torch}']

  def step(size, length, rows, *more):
    shape = ['--gpu', f'--size={size}', f'--batch={rows}']
    if not on_gpu:
      shape = (
        '--size=tiny --layers=1 --batch=2 --one_at_a_time --gathered'.split()
      )
      shape += ['--rounds=2', '--steps=1']
    script = str(ROOT / 'benchmarks/measure/step.py')
    return [script, *shape, f'--seq_length={length}', f'--data={data}', *more]

  def other(name, *more):
    return [str(ROOT / 'benchmarks' / name), *more]

  small = [] if on_gpu else ['--size=tiny', '--seq_length=128']
  ways = WAYS if on_gpu else WAYS[:2]  # flash is for GPUs
  return {
    'versions': ['-m', 'pip', 'list'],
    'data': ['-c', PREPARE, str(data)],
    'values': other('proofs/gpu_values.py', here, *small),
    # One after another, since not all ways fit next to each other.
    'attention': step(
      'large', 512, 16, '--full', '--one_at_a_time', '--ways', *ways
    ),
    'large-128': step('large', 128, 128, '--full', *torch),
    'large-512': step('large', 512, 32, '--full', *torch),
    'base-128': step(
      'base', 128, 256, *torch, '--flags', 'xla_gpu_deterministic_ops=true'
    ),
    'runs': other('proofs/gpu_runs.py', here),
    'kill': other('proofs/kill.py', here, f'--kills={4 if on_gpu else 1}'),
  }


def run(name, command, args, limit) -> bool:
  """Runs a part and keeps what it prints; returns whether it ended well."""
  paths = [ROOT, ROOT / 'benchmarks/measure', os.environ.get('PYTHONPATH', '')]
  env = {
    **os.environ,
    'PYTHONPATH': os.pathsep.join(map(str, paths)),
    'PYTHONUNBUFFERED': '1',
    # The data need no GPU. Scripts that use both devices set it again.
    'JAX_PLATFORMS': 'cpu' if name == 'data' else args.platform,
  }
  output = args.folder / f'{name}.part'
  shell = '"$@" 2>&1 | tee "$0"; exit ${PIPESTATUS[0]}'
  command = ['bash', '-c', shell, str(output), sys.executable, *command]
  try:
    code = subprocess.run(
      ['timeout', f'{limit:.0f}', *command], env=env
    ).returncode
  except KeyboardInterrupt:
    code = 130
  if code in (124, 130):
    print(f'LEFT: {name} was cut after {limit:.0f} s')
    return False
  with output.open('a') as file:
    file.write(f'{"FAIL" if code else "PASS"}: {name}, exit code {code}\n')
  output.rename(args.folder / f'{name}.txt')
  return not code


def main():
  begin = time.monotonic()
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--folder', default='gpu', type=pathlib.Path, help='default: gpu')
  add('--limit', type=int, default=590, help='seconds; default: 590')
  add('--torch', metavar='PYTHON', help='interpreter with PyTorch')
  add('--parts', help='some of those above, separated by commas')
  add('--platform', default='cuda', choices=['cuda', 'cpu'])
  args = parser.parse_args()
  args.folder = args.folder.absolute()
  args.folder.mkdir(parents=True, exist_ok=True)
  parts = list_parts(args)
  chosen = args.parts.split(',') if args.parts else list(parts)
  if unknown := set(chosen) - set(parts):
    parser.error(f'no part {", ".join(unknown)}; there are {", ".join(parts)}')
  if any(str(args.folder) in word for x in chosen for word in parts[x]):
    chosen = ['data', *(x for x in chosen if x != 'data')]
  good = True
  for name in chosen:
    if (args.folder / f'{name}.txt').exists():
      continue
    left = begin + args.limit - time.monotonic()
    print(f'\n== {name}, {left:.0f} s left', flush=True)
    good &= left >= LEAST and run(name, parts[name], args, left)
  print(f'\n== verdicts after {time.monotonic() - begin:.0f} s')
  for path in sorted(args.folder.glob('*.txt')):
    for line in path.read_text(errors='replace').splitlines():
      if line.startswith(('PASS', 'FAIL', 'verdict')):
        print(f'{path.stem:10} {line}')
        good &= not line.startswith('FAIL')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
