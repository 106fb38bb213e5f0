"""Faults of hosts: processes that stand for them die, stop, hang or differ."""

import contextlib
import io
import pathlib
import re
import shutil
import sys

import damage
import hosts
import small_run
from fault import Fault, expect, quote

from bert_jax.pretraining import training_data
from bert_jax.workdir import log, paths

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
from configs import tiny

_FAST = {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}


def fail(how: str, victim: int):
  """Returns the measurement of a host that fails, see `hosts.check_failure`."""

  def measure(base, folder):
    [case] = [
      case for case in hosts.list_failures() if case[:3] == (how, victim, 2)
    ]
    data, said = prepare(folder), io.StringIO()
    with contextlib.redirect_stdout(said):
      good = hosts.check_failure(folder, data, case)
    text = said.getvalue()
    expect(good, text)
    seconds = text.partition('ended after ')[2].partition(' (')[0]
    line = text.partition('said: error: ')[2]
    line = re.sub(r' \(\S+, process \d+\)', '', line)
    return f'all ended after {seconds} with exit code {case[4]}: {quote(line)}'

  return measure


def prepare(folder: str) -> str:
  """Prepares the data of `hosts.CONFIG`; returns their folder."""
  c = tiny.get_config(hosts.CONFIG.partition(':')[2])
  training_data.prepare_data(c, folder)
  return paths.prepared_data(c, folder)


def _train(layout, workdir, own, folders=None):
  """Starts `small_config` on hosts; `own` are more arguments of each."""
  command = ['-m', 'bert_jax.main', f'--config={small_run.CONFIG}']
  command += [f'--workdir={workdir}']
  return hosts.start(layout, *command, env=_FAST, own=own, folders=folders)


def others(base, folder):
  """Starts two hosts of which one has other code, config or data."""
  # The path of the data is part of the config: on each host it is the same.
  folders = [f'{folder}/{k}' for k in range(2)]
  for path in folders:
    shutil.copytree(base.data, f'{path}/data')
  with open(f'{folders[1]}/data/manifest.json', 'a') as file:
    file.write('\n')
  # The same package with one line more.
  shutil.copytree(f'{small_run.ROOT}/bert_jax', f'{folder}/code/bert_jax')
  with open(f'{folder}/code/bert_jax/train/loop.py', 'a') as file:
    file.write('# another version\n')
  there = [folders[0], f'{folder}/code']
  use = f'--config.data.dir={base.data}'
  cases = (
    ('config', [[use], [use, '--config.seed=3']], folders, 'seed=3'),
    ('code', [[use], [use]], there, 'train/loop.py='),
    ('data', [['--config.data.dir=data']] * 2, folders, 'data_sha256='),
  )
  for name, own, where, word in cases:
    processes = _train((2, 1), f'{folder}/{name}', own, where)
    text = '\n'.join(hosts.outputs(processes, 1))
    lines = [x for x in text.splitlines() if x.startswith('error: ')]
    expect(lines, text[-3000:])
    expect(any(f'host 1 has {word}' in line for line in lines), f'{lines}')
    saved = f'{folder}/{name}/checkpoints'
    expect(not damage.list_files(saved), 'training has begun')
  return f'{len(cases)} times: "error: host 1 has {cases[1][3]}..." or similar'


def devices(base, folder):
  """Stops a run of two hosts with two devices; resumes on other layouts."""
  stopped = f'{folder}/stopped'
  own = [[f'--config.data.dir={base.data}', '--config.phases.steps=40,']] * 2
  processes = _train((2, 2), stopped, own)
  hosts.wait_for_step(stopped, 5, processes)
  processes[1].send_signal(15)
  text = hosts.outputs(processes, 143)[0]
  mark = text.rpartition('fingerprint=')[2].split()[0]
  last = {}
  for layout in ((1, 1), (1, 4), (4, 1)):
    workdir = f'{stopped}_{layout[0]}_{layout[1]}'
    shutil.copytree(stopped, workdir)
    more = [own[0]] * layout[0]
    text = hosts.outputs(_train(layout, workdir, more))[0]
    expect(f'fingerprint={mark}\n' in text, f'{layout}: {text[-3000:]}')
    rows = log.read(f'{workdir}/metrics.jsonl')
    last[layout] = {r['step']: r['loss'] for r in rows if r['kind'] == 'train'}
    expect(len(last[layout]) == 40, f'{layout}: {sorted(last[layout])}')
  first = last[1, 1]
  most = max(
    abs(found[step] - first[step]) / first[step]
    for found in last.values()
    for step in first
  )
  expect(most < hosts.TOLERANCE, f'losses differ by {most}')
  return (
    f'from 2 x 2 on 1 x 1, 1 x 4 and 4 x 1: fingerprint {mark} restored, '
    f'losses within {most:.0e} of their size'
  )


FAULTS = (
  Fault(
    'host_killed',
    'one of two hosts, which share no file, is killed',
    'the other one names it and ends within 30 s with exit code 75',
    fail('SIGKILL', 1),
  ),
  Fault(
    'host_0_killed',
    'the same with host 0, which holds the store',
    'the same',
    fail('SIGKILL', 0),
  ),
  Fault(
    'host_stopped',
    'one of two hosts is stopped by SIGSTOP, and continued later',
    'the other one names it and ends within 60 s, itself when it goes on',
    fail('SIGSTOP', 1),
  ),
  Fault(
    'host_slow',
    'one of two hosts takes too long for a step: its main thread sleeps, the '
    'rest of it lives (it counts after 10 s instead of 600)',
    'both end with exit code 75, each with its stacks; the host that did '
    'least is named',
    fail('hangs', 1),
  ),
  Fault(
    'host_fails',
    'one of two hosts cannot read its data: OSError',
    'both end within 30 s with exit code 70 and its message',
    fail('raises', 1),
  ),
  Fault(
    'hosts_differ',
    'one of two hosts has another config, code or data',
    'both stop before training; what differs is named',
    others,
  ),
  Fault(
    'other_devices',
    'a run of 2 hosts x 2 devices is stopped, and resumed on others',
    'the same fingerprint is restored, losses agree to a relative 1e-6',
    devices,
  ),
)
