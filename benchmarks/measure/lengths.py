"""Counts the tokens that a row has in batches of rows of similar length.

  python benchmarks/measure/lengths.py --glue=GLUE --vocab=vocab.txt

One epoch of configs/glue.py:sst2 on the first 16,000 rows, by batches of 32:
tokens per row without padding, with it, and if all were as long as the longest.
"""

import argparse
import os
import tempfile

import finetuning_rows

_ROWS = 16_000


def main():
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--glue', required=True, help="GLUE's folder")
  parser.add_argument('--vocab', required=True, metavar='vocab.txt')
  args = parser.parse_args()
  from bert_jax import tasks
  from bert_jax.train import task

  c = finetuning_rows.get_config(
    'glue',
    f'sst2,size=tiny,max_documents={_ROWS},epochs=1',
    data__input=finetuning_rows.find_sst2(args.glue),
    data__vocab=os.path.abspath(args.vocab),
  )
  with tempfile.TemporaryDirectory() as workdir:
    c, data = finetuning_rows.encode(c, workdir)
    made = tasks.get(c).make_task(c, data)
    (phase,) = task.list_phases(c)
    masks = [
      made.train_batch(phase, i, None)['input_mask'] for i in range(phase.steps)
    ]
  rows = sum(map(len, masks))
  print(
    f'{rows:,} rows of {sum(x.sum() for x in masks) / rows:.1f} tokens, at most '
    f'{max(x.sum(1).max() for x in masks)}; '
    f'{sum(x.size for x in masks) / rows:.1f} with padding in batches of '
    f'{phase.batch_size} by length, of {sorted({x.shape[1] for x in masks})}'
  )


if __name__ == '__main__':
  main()
