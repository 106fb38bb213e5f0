"""Checks everything that is not known yet of a GPU, in 30 minutes on one.

  python benchmarks/proofs/gpu.py --torch=PYTHON
  python benchmarks/proofs/gpu.py --parts=values,runs
  python benchmarks/proofs/gpu.py --platform=cpu

Needs one NVIDIA GPU, jax for its CUDA and no network; PYTHON, if given, has
torch and transformers. The parts, each in a process of its own that is ended
after 10 minutes:

  values      attention and random bits are those of the CPU
  runs        losses are those of the CPU; checkpoints move both ways
  kill        a killed and resumed run ends with the same bits
  large-128   MFU, speed against PyTorch, memory and time against preflight
  large-512   the same
  base-128    the same, and what deterministic ops cost
  packed      tokens/s of packed rows, length 512
  attention   each way to compute attention, memory and time
  flags       which flags of XLA help

The versions of all libraries come first. What each part prints is also in
--folder; its verdicts are added to verdicts.txt there as soon as it ends. After --limit seconds the rest is skipped. Ends with
all verdicts; the exit code is 1 if one is FAIL. Data that were prepared are used
again: --data says where. With --platform=cpu a tiny model tries the commands
where there is no GPU.
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
PART = 600  # seconds, at most
WORDS = 'PASS', 'FAIL', 'SKIP', 'verdict'  # that begin a verdict
LEAST = 60  # seconds; with fewer left, no part is begun
PACK = 3
WAYS = 'xla', 'recompute'
DETERMINISTIC = 'xla_gpu_deterministic_ops=true'
SHOW = 'import jax; print(jax.devices()[0].device_kind)'
LIBRARIES = (
  *('jax', 'jaxlib', 'jax-cuda12-plugin', 'jax-cuda13-plugin', 'flax', 'optax'),
  *('orbax-checkpoint', 'ml-collections', 'absl-py', 'numpy', 'array-record'),
  *(
    'tensorflow-datasets',
    'tokenizers',
    'safetensors',
    'torch',
    'transformers',
  ),
)
VERSIONS = f"""
import importlib.metadata as found, sys
print('python', sys.version.split()[0])
for name in {LIBRARIES}:
  try:
    print(name, found.version(name))
  except found.PackageNotFoundError:
    pass
"""
PREPARE = (
  'import sys, step_rows; '
  'step_rows.prepare_docs(sys.argv[1], -1, int(sys.argv[2]))'
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

  here = f'--platform={args.platform}'
  tiny = ['--size=tiny', '--seq_length=128']
  return {
    'values': other('proofs/gpu_values.py', [here], [here, *tiny]),
    'runs': ['proofs/gpu_runs.py', here],
    'kill': other('proofs/kill.py', [here, '--kills=4'], [here, '--kills=1']),
    'large-128': step('large', 128, 128, '--full', *torch),
    'large-512': step('large', 512, 32, '--full', *torch),
    'base-128': step('base', 128, 256, *torch, '--flags', DETERMINISTIC),
    'packed': step('base', 512, 32, f'--pack={PACK}', f'--packed={packed}'),
    'attention': step('large', 512, 16, '--full', '--ways', *WAYS),
    'flags': step('base', 128, 256, '--flags'),
  }


def prepare(args):
  """Prepares python-docs, plain and packed, unless the folder has them."""
  for pack in (1, PACK):
    folder = os.path.join(args.data, str(pack))
    subprocess.run(
      [sys.executable, '-c', PREPARE, folder, str(pack)],
      env=make_environment('cpu'),
      check=True,
    )


def make_environment(platform):
  paths = ROOT, ROOT / 'benchmarks' / 'measure'
  return {
    **os.environ,
    'PYTHONPATH': os.pathsep.join(
      [*map(str, paths), os.environ.get('PYTHONPATH', '')]
    ),
    'PYTHONUNBUFFERED': '1',
    'JAX_PLATFORMS': platform,
  }


def run(name, command, args, limit):
  """Runs a part, showing and keeping what it prints; returns its verdicts."""
  script, *rest = command
  print(f'\n== {name}: python benchmarks/{" ".join(command)}', flush=True)
  # Scripts that use both devices, or leave the GPU to others, set it again.
  process = subprocess.Popen(
    [sys.executable, str(ROOT / 'benchmarks' / script), *rest],
    env=make_environment(args.platform),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    process_group=0,
  )
  timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
  timer.start()
  start, found = time.monotonic(), []
  try:
    with open(os.path.join(args.folder, f'{name}.txt'), 'w') as file:
      for line in process.stdout:
        print(line, end='', flush=True)
        file.write(line)
        if line.startswith(WORDS):
          found.append(line.strip())
    code, seconds = process.wait(), time.monotonic() - start
  finally:
    timer.cancel()
    if process.poll() is None:  # this process was interrupted
      os.killpg(process.pid, signal.SIGKILL)
  if seconds >= limit:
    found.append(f'FAIL: ended after {limit:.0f} s')
  elif code and not any(line.startswith('FAIL') for line in found):
    found.append(f'FAIL: exit code {code} after {seconds:.0f} s')
  found = found or ['DONE: it has no goal; see what it printed']
  with open(os.path.join(args.folder, 'verdicts.txt'), 'a') as file:
    file.writelines(f'{name:10} {line}\n' for line in found)
  return found


def parse_arguments():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  add = parser.add_argument
  add('--folder', default='gpu', help='for results; default: gpu')
  add('--data', help='for prepared data; default: --folder')
  add('--limit', type=int, default=1800, help='seconds; default: 1800')
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


def describe_versions(python, args):
  """Returns the versions of what an interpreter has of LIBRARIES."""
  found = subprocess.run(
    [python, '-c', VERSIONS],
    env=make_environment(args.platform),
    capture_output=True,
    text=True,
  )
  return ', '.join(found.stdout.splitlines()) or f'unknown ({python} failed)'


def main():
  args = parse_arguments()
  args.folder = os.path.abspath(args.folder)
  args.data = os.path.abspath(args.data or args.folder)
  parts = choose(list_parts(args), args.parts)
  shown = subprocess.run(
    [sys.executable, '-c', SHOW],
    env=make_environment(args.platform),
    capture_output=True,
    text=True,
  )
  if shown.returncode:
    sys.exit(
      'error: jax finds no NVIDIA GPU; install jax[cuda12] or jax[cuda13], or '
      'give --platform=cpu.'
    )
  os.makedirs(args.folder, exist_ok=True)
  versions = describe_versions(sys.executable, args)
  if args.torch:
    versions += f'; PyTorch with {describe_versions(args.torch, args)}'
  with open(os.path.join(args.folder, 'verdicts.txt'), 'a') as file:
    print(f'{shown.stdout.strip()}: {versions}', flush=True)
    file.write(f'{shown.stdout.strip()}: {versions}\n')
  begin, verdicts = time.monotonic(), {}
  prepare(args)
  for name, command in parts.items():
    left = args.limit - (time.monotonic() - begin)
    if left < LEAST:
      verdicts[name] = [f'SKIP: no time left; --parts={name} runs it']
      continue
    verdicts[name] = run(name, command, args, min(PART, left))
  print(f'\n== verdicts after {time.monotonic() - begin:.0f} s')
  for name, lines in verdicts.items():
    for line in lines:
      print(f'{name:10} {line}')
  bad = any(x.startswith('FAIL') for lines in verdicts.values() for x in lines)
  return 1 if bad else 0


if __name__ == '__main__':
  sys.exit(main())
