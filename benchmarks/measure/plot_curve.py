"""Plots the curves of a run: loss and accuracy against steps.

pip install matplotlib
python benchmarks/measure/plot_curve.py --workdir=RUN --output=curve.png
"""

import argparse
import os

import matplotlib

matplotlib.use('Agg')

from matplotlib import pyplot

from bert_jax.workdir import log


def main():
  """Plots the curves and prints the last held-out numbers."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--workdir', required=True)
  parser.add_argument('--output', required=True)
  options = parser.parse_args()
  rows = log.read(os.path.join(options.workdir, 'metrics.jsonl'))
  entropy = next(r['unigram_entropy'] for r in rows if r['kind'] == 'run')
  figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.2))
  for name, axis in (('loss', axes[0]), ('accuracy', axes[1])):
    for objective, colour in (('mlm', 'C0'), ('nsp', 'C1')):
      key = f'{objective}_{name}'
      for kind, style in (
        ('train', {'alpha': 0.35, 'linewidth': 1}),
        ('eval', {'marker': 'o', 'markersize': 3}),
      ):
        points = [
          (r['step'], r[key]) for r in rows if r['kind'] == kind and key in r
        ]
        if points:
          label = f'{objective.upper()}, {kind}'.replace('eval', 'held out')
          axis.plot(
            *zip(*points, strict=True), color=colour, label=label, **style
          )
    axis.set_xlabel('step')
    axis.set_title({'loss': 'loss (nats)', 'accuracy': 'accuracy'}[name])
    axis.grid(alpha=0.3)
  axes[0].axhline(entropy, color='grey', linestyle='--', linewidth=1)
  axes[0].text(0, entropy, ' unigram entropy', va='bottom', color='grey')
  axes[0].set_ylim(bottom=0)
  axes[1].set_ylim(0, 1)
  axes[0].legend(loc='best')
  figure.tight_layout()
  figure.savefig(options.output, dpi=110)
  last = [r for r in rows if r['kind'] == 'eval'][-1]
  print({k: v if k == 'kind' else round(v, 4) for k, v in last.items()})


if __name__ == '__main__':
  main()
