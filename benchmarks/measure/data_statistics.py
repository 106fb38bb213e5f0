"""Compares statistics of our pairs and masks with Google's procedure.

  python benchmarks/measure/data_statistics.py --input=wiki_extracted,novels \\
    --vocab=vocab.txt

--input and --vocab are those of data.py. The same documents are prepared with
each of several seeds by bert_jax.data.prepare and the loader's masking, and by
google_procedure.py, a literal implementation of create_pretraining_data.py. Both
draw random second texts from any document; marks at the ends of the sentences of
the first input show how many are of the other kind than their first text. The
table gives each difference in standard errors, estimated from the seeds.

Takes four minutes. Prints a verdict; the exit code is 1 if it is FAILED.
"""

import argparse
import json
import os
import sys
import tempfile

import data_runs
import google_procedure
import numpy as np

# Short documents: each draws one target length, so a few novels would dominate
# the means and hide differences.
SEEDS, PARTS, LONGEST = 12, 5, 15_000
MARK = '§'  # at the end of each sentence of the first input


def ours_by_seed(f, parts, vocab, documents):
  """Yields the statistics of our records for each seed."""
  output = os.path.join(f.scratch, 'output')
  for seed in range(SEEDS):
    data_runs.remove(output)
    options = [f'--seed={seed}', '--negatives=uniform']
    command = data_runs.prepare(parts, f.vocab, 1, 2, output)
    data_runs.run([*command, *options], 2)
    with open(os.path.join(output, 'manifest.json'), encoding='utf-8') as file:
      found = json.load(file)['documents']
    if found['train'] + found['heldout'] != documents:
      sys.exit(f'ours has other documents: {found}, not {documents}.')
    batches = list(data_runs.masked_batches(output, ('train', 'heldout'), seed))
    rows = {k: np.concatenate([b[k] for b in batches]) for k in batches[0]}
    print(f'ours, seed {seed}: {len(rows["input_ids"]):,} pairs', flush=True)
    yield statistics(rows, documents, vocab)


def google_by_seed(vocab, documents):
  """Yields the statistics of google_procedure, for each seed."""
  dtype = google_procedure.features_type(
    data_runs.LENGTH, data_runs.PREDICTIONS
  )
  for seed in range(SEEDS):
    examples = google_procedure.make_examples(
      documents,
      list(vocab),
      seed=seed,
      max_seq_length=data_runs.LENGTH,
      max_predictions=data_runs.PREDICTIONS,
      passes=1,
    )
    rows = google_procedure.to_features(examples, vocab, dtype)
    print(f'google, seed {seed}: {len(rows):,} pairs', flush=True)
    yield statistics(rows, len(documents), vocab)


def statistics(rows, documents, vocab):
  return google_procedure.statistics(
    rows, documents, vocab['[MASK]'], vocab[MARK]
  )


def compare(f, parts):
  """Prints both sides; returns whether all rows agree within 3 sigma."""
  vocab = google_procedure.read_vocab(f.vocab)
  documents = google_procedure.read_documents(
    parts, lambda line: google_procedure.tokenize(line, vocab)
  )
  theirs = list(google_by_seed(vocab, documents))
  ours = list(ours_by_seed(f, parts, vocab, len(documents)))
  print(f'{"":<28} {"ours":>9} {"google":>9} {"sigma":>9} {"off by":>7}')
  worst = 0.0
  for name in ours[0]:
    a, b = ([one[name] for one in side] for side in (ours, theirs))
    sigma = np.sqrt((np.var(a, ddof=1) + np.var(b, ddof=1)) / SEEDS)
    off = (np.mean(a) - np.mean(b)) / max(sigma, 1e-12)
    worst = max(worst, abs(off))
    print(
      f'{name:<28} {np.mean(a):9.4f} {np.mean(b):9.4f} {sigma:9.5f} '
      f'{off:+7.2f} {"PASS" if abs(off) <= 3 else "FAIL"}'
    )
  print(f'{SEEDS} seeds each, {len(documents)} documents; worst: {worst:.2f}')
  return worst <= 3


def main():
  """Runs the command; returns its exit code."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  data_runs.add_arguments(parser)
  f = parser.parse_args()
  with tempfile.TemporaryDirectory(dir=f.scratch) as f.scratch:
    text = os.path.join(f.scratch, 'text')
    parts = data_runs.make_text(f.input.split(','), text, PARTS, LONGEST, MARK)
    ok = compare(f, parts)
  print(f'verdict: {"ok" if ok else "FAILED"}')
  return 0 if ok else 1


if __name__ == '__main__':
  sys.exit(main())
