"""Measures training on one NVIDIA GPU, the most telling parts first.

  python benchmarks/measure/gpu.py --compile=h100:1      (on a machine without a GPU)
  python benchmarks/measure/gpu.py --torch=PYTHON        (on one with that GPU)
  python benchmarks/measure/gpu.py --platform=cpu        (tries all with a tiny model)

Needs jax for the GPU's CUDA and no network; PYTHON, if given, has torch and
transformers. The first command prepares the rows and compiles our steps of `ROWS`
for a GPU that is not there, both into --folder; the second one loads these steps,
if they load there (same jax, CUDA and GPU), or compiles them, and says which. The
parts, each in a process of its own, in this order:

  versions    of the libraries
  products    bare products, of 8192³ and of LARGE's shapes, and the GPU's clock
  SIZE-LENGTH-BATCH: ms, MFU and memory of our step, and compiled PyTorch that
              decodes masked positions only, in turns; `-plain`: without kernels of
              ours
  values      attention, a layer and random bits are those of the CPU
  runs        losses are those of the CPU; checkpoints move both ways
  kill        a killed and resumed run ends with the same bits

Everything is printed as it is known. What a part printed is in --folder/PART.txt when
it has ended; a call ends after --limit seconds, and the same one again goes on with
the parts that have not. The exit code is 1 if a part failed or is left.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
LEAST = 30  # seconds; with fewer left, no part is begun
PREPARE = 'import sys, step_rows; step_rows.prepare_docs(sys.argv[1], -1)'
# Size, length, rows of a batch, and whether our step runs without kernels, too.
ROWS = (
  ('large', 128, 128, False),
  ('large', 512, 32, True),
  ('large', 128, 256, False),
  ('large', 512, 64, False),
  ('base', 128, 256, False),
  ('medium', 128, 512, False),
  ('tiny', 128, 1024, False),
  ('large', 128, 128, True),
)
TINY = (('tiny', 128, 2, True),)


def list_parts(args) -> dict[str, list[str]]:
  """Returns {name: arguments of Python}."""
  on_gpu, given = args.platform == 'cuda', [f'--data={args.folder / "data"}']
  given += [f'--compiled={args.folder}', *['--gpu'] * on_gpu]
  turns = ['--rounds=3', '--gathered', '--one_at_a_time']
  turns += ['--steps=20'] if on_gpu else ['--steps=1', '--layers=1']
  if args.torch:
    turns.append(f'--torch={args.torch}')
  here, probe = f'--platform={args.platform}', str(HERE / 'gpu_probe.py')
  parts = {
    'versions': ['-m', 'pip', 'list'],
    'products': [probe, 'products', f'--shrink={1 if on_gpu else 32}'],
  }
  for size, length, rows, plain in ROWS if on_gpu else TINY:
    name = f'{size}-{length}-{rows}'
    shape = [f'--size={size}', f'--seq_length={length}', f'--batch={rows}']
    # LARGE's rows are full; others are as they come.
    shape += [*given, *['--full'] * (size == 'large' and on_gpu)]
    step = [str(HERE / 'step.py'), *shape, *turns]
    parts.setdefault(name, step)
    if plain:
      parts[f'{name}-plain'] = [*step, '--attention=xla']
  proofs = HERE.parent / 'proofs'
  small = [] if on_gpu else ['--size=tiny', '--seq_length=128']
  return parts | {
    'values': [str(proofs / 'gpu_values.py'), here, *small],
    'runs': [str(proofs / 'gpu_runs.py'), here],
    'kill': [str(proofs / 'kill.py'), here, f'--kills={4 if on_gpu else 1}'],
  }


def run(name, command, args, limit) -> bool:
  """Runs a part and keeps what it prints; returns whether it ended well."""
  paths = [HERE.parents[1], HERE, os.environ.get('PYTHONPATH', '')]
  env = {
    **os.environ,
    'PYTHONPATH': os.pathsep.join(map(str, paths)),
    'PYTHONUNBUFFERED': '1',
    # The data need no GPU. Scripts that use both devices set it again.
    'JAX_PLATFORMS': 'cpu' if name in ('data', 'compile') else args.platform,
  }
  output = args.folder / f'{name}.part'
  shell = '"$@" 2>&1 | tee "$0"; exit ${PIPESTATUS[0]}'
  command = ['bash', '-c', shell, str(output), sys.executable, *command]
  code = subprocess.run(
    ['timeout', f'{limit:.0f}', *command], env=env
  ).returncode
  if code == 124:
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
  add('--limit', type=int, default=470, help='seconds; default: 470')
  add('--torch', metavar='PYTHON', help='interpreter with PyTorch')
  add('--parts', help='some of those above, separated by commas')
  add('--platform', default='cuda', choices=['cuda', 'cpu'])
  add('--compile', metavar='GPU:1', help='compile for it and do nothing else')
  args = parser.parse_args()
  args.folder = args.folder.absolute()
  args.folder.mkdir(parents=True, exist_ok=True)
  parts = {'data': ['-c', PREPARE, str(args.folder / 'data')]}
  if args.compile:
    rows = dict.fromkeys(f'{size}:{n}:{b}' for size, n, b, _ in ROWS)
    probe = [
      str(HERE / 'gpu_probe.py'),
      'compile',
      f'--topology={args.compile}',
    ]
    probe += [f'--data={args.folder / "data"}', f'--compiled={args.folder}']
    parts['compile'] = [*probe, '--rows', *rows]
    args.limit = 10**6
  else:
    parts |= list_parts(args)
  chosen = ['data', *args.parts.split(',')] if args.parts else list(parts)
  if unknown := set(chosen) - set(parts):
    parser.error(f'no part {", ".join(unknown)}; there are {", ".join(parts)}')
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
        print(f'{path.stem:16} {line}')
        good &= not line.startswith('FAIL')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
