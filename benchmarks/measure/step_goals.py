"""What step.py has to reach on a GPU, and what preflight said before."""

import os
import statistics

# The least share of the chip's peak, by layers, hidden size and length.
SHARES = {
  (24, 1024, 128): 0.55,
  (24, 1024, 512): 0.50,
  (12, 768, 128): 0.45,
}
PYTORCH = 1.3  # at least so many times as fast, in either way of decoding
MEMORY = 0.1  # how far preflight's memory may be off


def judge(c, ours, medians) -> bool:
  """Prints a line for each goal; returns whether none was missed.

  Args:
    c: the config, of one phase.
    ours: the `step_turns.Peer` of bert_jax after its turns.
    medians: {name: how many times slower than ours}.
  """
  from bert_jax.hardware import chips

  good = [
    say(ratio >= PYTORCH, f'{ratio:.2f}x {name} (at least {PYTORCH}x)')
    for name, ratio in medians.items()
    if name.startswith('PyTorch')
  ]
  if not good:
    print('SKIP: no PyTorch to compare with; --torch=PYTHON adds it')
  chip = chips.find(ours.device)
  if chip is None:
    print(
      'SKIP: MFU, memory and time were not checked: the data sheet of '
      f'{ours.device} is not in bert_jax/hardware/chips.py'
    )
    return all(good)
  facts, seconds = foresee(c, chip), statistics.median(ours.seconds)
  return all(good + _compare(c, facts, seconds, ours.last['peak_bytes'], chip))


def foresee(c, chip) -> dict:
  """Returns what preflight says of the config's phase on one such chip."""
  import jax

  from bert_jax.hardware import accelerators
  from bert_jax.preflight import examine
  from bert_jax.train import task

  jax.config.update('jax_platforms', 'cpu')  # leaves the GPU to others
  where = accelerators.parse(f'{chip.name}:1')
  phases = task.list_phases(c)
  quick = True  # compiling all layers would keep the GPU waiting
  flags = os.environ.get('XLA_FLAGS', '')
  _, (facts,), _ = examine.examine(c, where, phases, quick, lambda line: None)
  os.environ['XLA_FLAGS'] = flags  # those for absent GPUs are not for peers
  return facts


def _compare(c, facts, seconds, peak, chip) -> list[bool]:
  """Prints how a step's seconds and bytes compare; returns what was reached."""
  chip = chip.for_products(c.model.dtype, c.compute.matmul_precision)
  share = facts['model_flops_per_step'] / seconds / chip.flops
  shape = c.model.num_layers, c.model.hidden_size, c.phases.seq_length[0]
  found = []
  if shape in SHARES and c.model.dtype == 'bfloat16':
    goal = SHARES[shape]
    found.append(say(share >= goal, f'MFU {share:.1%} (at least {goal:.0%})'))
  else:
    print(f'SKIP: no goal for the MFU of this model, {share:.1%}')
  low, high = facts['step_seconds_estimate']
  found.append(
    say(
      low <= seconds <= high,
      f'{seconds * 1e3:.0f} ms a step, of {low * 1e3:.0f} to '
      f'{high * 1e3:.0f} ms by preflight',
    )
  )
  if peak is None:
    print('SKIP: jax does not know how much memory was in use')
    return found
  ratio = peak / facts['needed_bytes']
  found.append(
    say(
      abs(ratio - 1) <= MEMORY,
      f'{peak / 2**30:.2f} GiB in use, {ratio:.2f} times the '
      f'{facts["needed_bytes"] / 2**30:.2f} GiB by preflight '
      f'(within {MEMORY:.0%})',
    )
  )
  return found


def say(good, text) -> bool:
  print(f'{"PASS" if good else "FAIL"}: {text}')
  return good
