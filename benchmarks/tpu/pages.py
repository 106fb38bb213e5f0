"""Writes docs/preflight_pages.md: what preflight says of the paper's runs.

  python benchmarks/tpu/pages.py --folder=DIR [PAGE ...] [--write]

Runs each command that the page shows and keeps its JSON and text in DIR;
results that are already there are reused. --write then writes the page. Each
PAGE compiles all programs of both phases with all layers: BASE takes about ten
minutes, LARGE twenty, on two cores. The exit code is 1 if a program cannot be
compiled.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import textwrap

ROOT = str(pathlib.Path(__file__).resolve().parents[2])
PAGE = os.path.join(ROOT, 'docs', 'preflight_pages.md')
BASE = 'v4:2x2x1 v5e:2x2 v6e:2x2 v5p:2x2x1 tpu7x:2x2x1 v3:2x2'.split()
LARGE = 'v5e:4x4 v4:2x2x4 v6e:4x4 v5p:2x2x4 tpu7x:2x2x4 v3:4x4'.split()
COMPACT = 'small', 'medium'  # of one config file
RUNS = {
  f'{config} on {topology}': (config, topology)
  for config, topologies in (
    ('base', BASE),
    *((size, ['v5e:2x2']) for size in COMPACT),
    ('large', LARGE),
  )
  for topology in topologies
}
INTRODUCTION = """\
# What preflight says of the paper's runs

The paper trained BASE on 4 Cloud TPUs (16 chips) and LARGE on 16 (64 chips), in
four days each. These are runs on smaller slices, with the paper's batches of
256. Nothing was run: every program of both phases is compiled without a TPU.
[preflight](preflight.md) says what is exact and what is estimated. Versions:
jax {jax}, libtpu {libtpu}. This page is written by

```sh
{command}
```

which keeps all that preflight prints of each run, such as `python -m
bert_jax.preflight --config=configs/large.py --topology=v5e:4x4`, in DIR.
{missing}
{summary}
"""


def arguments(config: str, topology: str, quick: bool) -> list[str]:
  """Returns the arguments of preflight."""
  own = f'compact.py:{config}' if config in COMPACT else f'{config}.py'
  found = [f'--config=configs/{own}', f'--topology={topology}']
  return [*found, '--quick'] if quick else found


def run(folder: str, name: str, quick: bool) -> tuple[dict, bool]:
  """Returns preflight's JSON, and whether it was `quick`."""
  given = arguments(*RUNS[name], quick)
  slug = name.replace(' on ', '_').replace(':', '_')
  text, facts = (os.path.join(folder, f'{slug}.{x}') for x in ('txt', 'json'))
  if not os.path.exists(text):
    command = [sys.executable, '-m', 'bert_jax.preflight', *given]
    print(f'{name} ...', file=sys.stderr, flush=True)
    done = subprocess.run(
      [*command, f'--json={facts}'],
      cwd=ROOT,
      capture_output=True,
      text=True,
    )
    if done.returncode not in (0, 2):
      raise SystemExit(f'{name}: {done.stderr.strip().splitlines()[-1]}')
    pathlib.Path(f'{text}.tmp').write_text(done.stdout)
    os.replace(f'{text}.tmp', text)
  found = json.loads(pathlib.Path(facts).read_text())
  compiled = found['phases'][0]['compiled_layers']
  return found, compiled != [found['layers']]


def row(name: str, found: dict, quick: bool) -> str:
  """Returns a row of the summary."""
  good = sum(program['ok'] for program in found['programs'])
  cells = [name, f'{good} of {len(found["programs"])}']
  for phase in found['phases']:
    low, high = phase.get('step_seconds_estimate', (0, 0))
    needed = phase.get('needed_bytes', 0) / 2**30
    cells.append(
      f'{needed:.1f} of {phase["usable_bytes"] / 2**30:.1f} GiB, '
      f'{1e3 * low:,.0f} to {1e3 * high:,.0f} ms'
    )
  hours = (found['run_estimate'] or {}).get('hours', (0, 0))
  cells.append(f'{hours[0]:,.0f} to {hours[1]:,.0f}')
  cells.append('2 and 4' if quick else 'all')
  return f'| {" | ".join(cells)} |'


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument(
    'pages', nargs='*', help=f'default: all of {"; ".join(RUNS)}'
  )
  parser.add_argument('--folder', required=True, help='folder for results')
  parser.add_argument('--quick', action='store_true', help='as for preflight')
  parser.add_argument('--write', action='store_true', help='write the page')
  args = parser.parse_args()
  if unknown := [name for name in args.pages if name not in RUNS]:
    parser.error(f'no {unknown[0]!r}; there are {"; ".join(RUNS)}')
  os.makedirs(args.folder, exist_ok=True)
  rows, good = [], True
  for name in args.pages or RUNS:
    found, quick = run(args.folder, name, args.quick)
    good &= all(program['ok'] for program in found['programs'])
    rows.append(row(name, found, quick))
  summary = [
    '| run | programs compiled | length 128: memory, step | length 512 | '
    'hours | layers |',
    '|---|---|---|---|---|---|',
    *rows,
  ]
  print('\n'.join(summary))
  if args.write:
    versions = {x: importlib.metadata.version(x) for x in ('jax', 'libtpu')}
    missing = [name for name in RUNS if args.pages and name not in args.pages]
    listed = ', '.join(missing)
    introduction = INTRODUCTION.format(
      missing=f'\n{textwrap.fill(f"Not compiled: {listed}.", 80)}\n'
      if missing
      else '',
      command='python benchmarks/tpu/pages.py --folder=DIR --write',
      summary='\n'.join(summary),
      **versions,
    )
    with open(PAGE, 'w') as file:
      file.write(introduction)
  print(f'verdict: {"ok" if good else "a program cannot be compiled"}')
  return 0 if good else 1


if __name__ == '__main__':
  sys.exit(main())
