"""Draws the held-out loss of runs against their FLOPs, one panel per width.

  python benchmarks/measure/plateau_figure.py --runs=DIR,DIR --draw=plateau.png

Runs with `model.attention_init=neighbours` have one colour, those with `random`
another. The dotted line is 1 nat below the unigram entropy of the text. Only rows of
the first phase's length count. Needs the extra `plot`.
"""

import argparse

from bert_jax.report import runs
from bert_jax.runtime import drawing
from bert_jax.train import task


def list_rows(run: runs.Run) -> list[dict]:
  """Returns the evaluations of a run before its rows become longer."""
  first, end = task.list_phases(run.config)[0], 0
  for phase in task.list_phases(run.config):
    if phase.seq_length != first.seq_length:
      break
    end = phase.first + phase.steps
  return [row for row in run.list_rows('eval') if row['step'] <= end]


def draw(path: str, found: list[runs.Run]):
  """Draws a panel for each hidden size."""
  widths = sorted({run.config.model.hidden_size for run in found})
  figure = drawing.import_matplotlib().figure.Figure(
    (3.2 * len(widths), 3.2), layout='constrained'
  )
  panels = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
  for axis, width in zip(panels, widths, strict=True):
    shown = [run for run in found if run.config.model.hidden_size == width]
    named = set()
    for run in sorted(shown, key=lambda run: run.config.model.attention_init):
      start = run.config.model.attention_init
      rows = list_rows(run)
      axis.plot(
        [row['flops'] for row in rows],
        [row['mlm_loss'] for row in rows],
        color={'neighbours': 'C0', 'random': 'C1'}[start],
        label='' if start in named else start,
        linewidth=1,
      )
      named.add(start)
    entropy = shown[0].manifest['unigram_entropy']
    axis.axhline(entropy - 1, color='gray', linestyle=':', linewidth=1)
    axis.set(title=f'width {width}', xlabel='FLOPs')
    axis.spines[['top', 'right']].set_visible(False)
  panels[0].set_ylabel('held-out MLM loss')
  panels[0].legend(title='model.attention_init', frameon=False)
  figure.savefig(path, dpi=120)


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawTextHelpFormatter
  )
  parser.add_argument('--runs', required=True, help='their directories')
  parser.add_argument('--draw', required=True, help='a PNG file')
  args = parser.parse_args()
  found, _ = runs.find(args.runs.split(','))
  draw(args.draw, found)
  for run in found:
    *_, last = list_rows(run)
    left = last.get('plateau_exit_flops')
    print(
      f'{run.name}: {last["mlm_loss"]:.3f}, {last["mlm_accuracy"]:.1%} at '
      f'{last["flops"]:.2e} FLOPs; plateau left at '
      + (f'{left:.2e}' if left else 'none yet')
    )


if __name__ == '__main__':
  main()
