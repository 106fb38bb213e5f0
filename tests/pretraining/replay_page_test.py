"""The report of a replayed step, as lines and as JSON."""

import json

import jax.numpy as jnp
import pytest

from bert_jax.pretraining import pretrain, replay, replay_page, replay_rows
from tests.pretraining import replay_test

made = replay_test.made


def make_report(workdir, number, **how):
  found = replay.rebuild(str(workdir), number)
  measured = replay_rows.measure(found, lambda n: None)
  return found, replay_page.make_report(found, measured, **how)


@pytest.mark.slow
def test_all_rows_are_listed_and_the_first_in_full(made):
  found, report = make_report(made, 6, rows=2)
  lines = replay_page.render(report)
  assert lines[0] == 'step 6: phase 0, 16 rows of 32 tokens'
  assert lines[1].startswith('weights: checkpoint of step 4, fingerprint=')
  assert lines[1].endswith('; updates between: 1')
  assert lines[2] == 'dropout: as in training'
  head = lines.index('  row   share     mlm     nsp  gradient  text')
  table = lines[head + 1 : head + 17]
  assert sorted(int(line.split()[0]) for line in table) == list(range(16))
  assert max(map(len, table)) == 80
  assert sum(row['share'] for row in report['rows']) == pytest.approx(1)
  full = [line for line in lines if line.startswith('row ')]
  first = report['rows'][0]
  place, epoch = found.places[first['row']], found.epochs[first['row']]
  assert full[0] == f'row {first["row"]}: {place}, epoch {epoch}'
  assert len(full) == 2
  text = lines[lines.index(full[0]) + 1]
  assert text.startswith('  [CLS] ') and '*' in ' '.join(lines)
  words = replay_rows.predict(found, first['row'])
  least = min(words, key=lambda word: word['probability'])
  at = next(i for i, line in enumerate(lines) if 'least expected of' in line)
  place, token = lines[at + 1].split()[:2]
  assert (place, token) == (str(least['position']), f'{least["truth"]},')


@pytest.mark.slow
def test_rows_that_are_not_finite_come_first_and_fit_in_json(made, monkeypatch):
  batch = replay.rebuild(made, 6).batch
  # A token that is in some rows only, which the model cannot compute.
  rows = [{*ids.tolist()} for ids in batch['input_ids']]
  bad = next(i for i in range(5, 120) if 0 < sum(i in r for r in rows) < 4)
  compute_sums = pretrain.compute_sums

  def failing(module, params, batch, key, **more):
    sums, others = compute_sums(module, params, batch, key, **more)
    fails = jnp.any(batch['input_ids'] == bad)
    return {**sums, 'mlm_loss': sums['mlm_loss'] / ~fails}, others

  monkeypatch.setattr(pretrain, 'compute_sums', failing)
  _, report = make_report(made, 6, rows=1, sort='gradient')
  wrong = [i for i, row in enumerate(rows) if bad in row]
  assert report['not_finite'] == len(wrong)
  assert {row['row'] for row in report['rows'][: len(wrong)]} == {*wrong}
  lines = replay_page.render(report)
  assert f'rows that are not finite: {len(wrong)}' in lines
  text = json.dumps(replay_page.make_json(report), allow_nan=False)
  assert json.loads(text)['loss'] in ('inf', 'nan')


def test_a_row_without_tokens_and_a_skipped_update_are_shown(made):
  found = replay.rebuild(made, 6)
  for name, x in found.batch.items():
    x[2] = 0 if name != 'input_ids' else found.tokenizer.pad_id
  report = replay_page.make_report(
    found, replay_rows.measure(found, lambda n: None), rows=0
  )
  last = report['rows'][-1]
  assert last['row'] == 2 and last['loss'] == 0
  last['predictions'] = []
  assert '  no token to predict' in replay_page.render(report)
  report['logged'] = {'skipped': {'step': 6, 'grad_norm': 'nan'}}
  text = ' '.join(replay_page.render(report))
  assert 'logged: skipped at step 6: grad_norm nan' in text
  assert 'rows that are not finite: 0' in text
