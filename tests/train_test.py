"""Tests of the training step and of the loop."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config, errors, heads, log, optim, sharding, task, train
from bert_jax.tasks import pretrain

ROWS, LENGTH, PREDICTIONS, VOCAB = 8, 6, 3, 11


def small_config(steps=(6,), **changes):
  c = config.pretraining('tiny')
  with c.unlocked():
    c.data.vocab_size = VOCAB
    c.model.update(
      num_layers=1,
      hidden_size=8,
      num_heads=2,
      mlp_size=12,
      max_positions=LENGTH,
    )
    c.phases.seq_length = (LENGTH,) * len(steps)
    c.phases.steps = steps
    c.phases.batch_size = (ROWS,) * len(steps)
    c.phases.accumulate = (1,) * len(steps)
    c.phases.max_predictions = (PREDICTIONS,) * len(steps)
    c.optimizer.warmup_steps = 2
    c.optimizer.learning_rate = 1e-2
    c.log.every = 2
    c.checkpoint.every = 4
    c.eval.every = 4
    for name, value in changes.items():
      section, _, field = name.partition('__')
      c[section][field] = value
  return c


def make_batch(seed, rows=ROWS):
  """Real numbers of masked tokens differ from row to row."""
  rng = np.random.default_rng(seed)
  mask = (np.arange(LENGTH) < rng.integers(3, LENGTH + 1, (rows, 1))) * 1
  weights = np.arange(PREDICTIONS) < rng.integers(1, 4, (rows, 1))
  return {
    'input_ids': (rng.integers(1, VOCAB, (rows, LENGTH)) * mask).astype('i4'),
    'input_mask': mask.astype('i4'),
    'segment_ids': np.zeros((rows, LENGTH), 'i4'),
    'masked_lm_positions': rng.integers(0, 3, (rows, PREDICTIONS)).astype('i4'),
    'masked_lm_ids': rng.integers(0, VOCAB, (rows, PREDICTIONS)).astype('i4'),
    'masked_lm_weights': weights.astype('f4'),
    'next_sentence_labels': rng.integers(0, 2, rows).astype('i4'),
    'next_sentence_weights': np.ones(rows, 'f4'),
  }


def make_task(c, batch=make_batch):
  bert = config.model_config(c)
  module = heads.PretrainingModel(bert)
  return task.Task(
    init=functools.partial(pretrain.init, module),
    counts=functools.partial(pretrain.counts, with_nsp=True),
    sums=functools.partial(pretrain.sums, module),
    train_batch=lambda phase, step: batch(step),
    eval_batch=lambda phase, i: make_batch(1000 + i),
    eval_batches=lambda phase: 2,
    flops=lambda phase: 1e6,
    expected_loss=math.log(VOCAB) + math.log(2),
    describe=lambda batch: [f'{len(batch["input_ids"])} rows'],
    facts={'unigram_entropy': 2.0},
  )


@functools.cache
def make_step(dropout=0.0, parts=1):
  """Returns (state, jitted step) before the sixth of a hundred updates."""
  c = small_config(model__dropout=dropout, model__attention_dropout=dropout)
  made = make_task(c)
  tx = optim.make(c.optimizer)
  step = functools.partial(
    train.train_step,
    task=made,
    tx=tx,
    schedule=optim.schedule(c.optimizer, 100),
    parts=parts,
  )
  init = functools.partial(train.init_state, task=made, tx=tx)
  state = jax.jit(init)(jax.random.key(0))
  return state.replace(step=jnp.int32(5)), jax.jit(step)


@pytest.mark.parametrize('parts', [2, 4])
def test_accumulation_equals_the_big_batch(parts):
  batch, key = make_batch(0), jax.random.key(1)
  state, one = make_step()
  _, many = make_step(parts=parts)
  a, a_metrics = one(state, batch, key)
  b, b_metrics = many(state, batch, key)
  weights = batch['masked_lm_weights'].sum(1)
  per_part = [weights[i::parts].sum() for i in range(parts)]
  assert len(set(per_part)) > 1  # uneven, or a mean of means would pass
  np.testing.assert_allclose(
    a_metrics['grad_norm'], b_metrics['grad_norm'], rtol=1e-5
  )
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6),
    (a.opt_state, a_metrics['sums']),
    (b.opt_state, b_metrics['sums']),
  )


def test_devices_do_not_change_the_loss():
  # Dropout is on: its bits must not depend on the layout either.
  batch, key = make_batch(0), jax.random.key(1)
  state, step = make_step(dropout=0.1)
  found = []
  for n in (1, 2, 4, 8):
    mesh = jax.sharding.Mesh(jax.devices()[:n], ('data',))
    placed = jax.device_put(state, sharding.replicated(mesh))
    rows = sharding.put_batch(mesh, batch)
    _, metrics = step(
      placed, rows, jax.device_put(key, sharding.replicated(mesh))
    )
    total, count = metrics['sums']['mlm_loss']
    found.append(float(total) / float(count))
    assert abs(found[-1] - found[0]) < 1e-6
  assert abs(found[0] - math.log(VOCAB)) < 0.2


def test_dropout_differs_from_step_to_step():
  state, step = make_step(dropout=0.1)
  batch, key = make_batch(0), jax.random.key(1)
  losses = [
    float(step(state.replace(step=jnp.int32(s)), batch, key)[1]['grad_norm'])
    for s in (5, 6)
  ]
  assert losses[0] != losses[1]


def test_a_non_finite_gradient_changes_nothing_but_the_step():
  state, step = make_step()
  bad = make_batch(0)
  bad['masked_lm_weights'][:] = np.inf
  new, metrics = step(state, bad, jax.random.key(1))
  assert not metrics['finite']
  assert int(new.step) == int(state.step) + 1
  jax.tree.map(
    np.testing.assert_array_equal,
    (new.params, new.opt_state),
    (state.params, state.opt_state),
  )


def test_gradient_is_that_of_the_averaged_losses():
  state, step = make_step()
  batch = make_batch(0)
  module = heads.PretrainingModel(config.model_config(small_config()))

  def loss(params):
    mlm, nsp = module.apply({'params': params}, batch)
    mlm_nll = -jnp.take_along_axis(
      jax.nn.log_softmax(mlm), batch['masked_lm_ids'][..., None], -1
    )[..., 0]
    w = batch['masked_lm_weights']
    nsp_nll = -jnp.take_along_axis(
      jax.nn.log_softmax(nsp), batch['next_sentence_labels'][:, None], -1
    )
    return jnp.sum(mlm_nll * w) / w.sum() + jnp.mean(nsp_nll)

  grads = jax.jit(jax.grad(loss))(state.params)
  norm = math.sqrt(sum(float(jnp.sum(g * g)) for g in jax.tree.leaves(grads)))
  metrics = step(state, batch, jax.random.key(1))[1]
  assert float(metrics['grad_norm']) == pytest.approx(norm, rel=1e-5)


def test_one_golden_step():
  state, step = make_step()
  new, metrics = step(state, make_batch(0), jax.random.key(1))
  total, count = metrics['sums']['mlm_loss']
  found = {
    'loss': round(float(total) / float(count), 4),
    'grad_norm': round(float(metrics['grad_norm']), 4),
    'learning_rate': round(float(metrics['learning_rate']), 6),
    'weights': round(
      float(sum(jnp.abs(x).sum() for x in jax.tree.leaves(new.params))), 2
    ),
  }
  assert found == GOLDEN, (
    'The update changed. If that is intended, put these numbers into GOLDEN '
    'and say so in CHANGELOG.md: runs cannot be resumed bit for bit.'
  )


GOLDEN = {
  'loss': 2.4042,
  'grad_norm': 1.0126,
  'learning_rate': 0.009694,
  'weights': 45.08,
}


def fit(c, workdir, **kwargs):
  return train.fit(c, make_task(c, **kwargs), str(workdir))


def rows_of(workdir, kind):
  found = log.read(str(workdir / 'metrics.jsonl'))
  return [r for r in found if r['kind'] == kind]


def test_fit_logs_evaluates_and_saves(tmp_path):
  fit(small_config(steps=(4, 4)), tmp_path)
  assert [r['step'] for r in rows_of(tmp_path, 'train')] == [2, 4, 6, 8]
  assert [r['step'] for r in rows_of(tmp_path, 'eval')] == [4, 8]
  assert [r['step'] for r in rows_of(tmp_path, 'checkpoint')] == [4, 8]
  row = rows_of(tmp_path, 'train')[-1]
  assert row['sequences_per_second'] > row['tokens_per_second'] / LENGTH
  assert row['learning_rate'] == pytest.approx(1e-2 / 6)
  assert {'mlm_loss', 'mlm_accuracy', 'nsp_loss', 'nsp_accuracy'} <= set(row)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
  c = small_config(steps=(4, 4), checkpoint__every=3)
  whole = fit(c, tmp_path / 'a')

  def failing(step):
    if step == 7 and not (tmp_path / 'failed').exists():
      (tmp_path / 'failed').touch()
      raise OSError('the disk was pulled out')
    return make_batch(step)

  with pytest.raises(OSError, match='pulled out'):
    fit(c, tmp_path / 'b', batch=failing)
  resumed = fit(c, tmp_path / 'b', batch=failing)
  jax.tree.map(np.testing.assert_array_equal, whole, resumed)
  ends = [rows_of(tmp_path / x, 'checkpoint')[-1] for x in 'ab']
  assert ends[0]['fingerprint'] == ends[1]['fingerprint']
  steps = [r['step'] for r in rows_of(tmp_path / 'b', 'train')]
  assert steps == sorted(set(steps))


def test_twenty_non_finite_updates_in_a_row_stop_the_run(tmp_path):
  def broken(step):
    batch = make_batch(step)
    if step >= 5:
      batch['masked_lm_weights'][:] = np.nan
    return batch

  c = small_config(steps=(60,), checkpoint__every=4, eval__every=0)
  with pytest.raises(errors.UserError, match='20 updates in a row.*step 25'):
    fit(c, tmp_path, batch=broken)
  skipped = [r['step'] for r in rows_of(tmp_path, 'skipped')]
  assert skipped == list(range(6, 26))


def test_a_wrong_initial_loss_stops_the_run(tmp_path):
  c = small_config(model__initializer_std=5.0)
  with pytest.raises(errors.UserError, match='the initial loss is'):
    fit(c, tmp_path)


def test_a_batch_that_devices_cannot_share_stops_the_run(tmp_path):
  c = small_config(phases__batch_size=(12,))
  with pytest.raises(errors.UserError, match='use a multiple of 8'):
    fit(c, tmp_path)


def test_too_little_disk_stops_the_run(tmp_path, monkeypatch):
  monkeypatch.setattr(
    train.shutil,
    'disk_usage',
    lambda path: type('Usage', (), {'free': 1000}),
  )
  with pytest.raises(errors.UserError, match='GB free, but 4 checkpoints'):
    fit(small_config(), tmp_path)


def test_other_data_under_a_run_stops_it(tmp_path):
  c = small_config()
  fit(c, tmp_path)
  made = make_task(c)
  made.facts['unigram_entropy'] = 2.5
  with pytest.raises(errors.UserError, match='was 2.0, is 2.5'):
    train.fit(c, made, str(tmp_path))


def test_the_step_is_compiled_once_per_phase(tmp_path, monkeypatch):
  traces = []
  original = train.train_step

  def counting(*args, **kwargs):
    traces.append(1)
    return original(*args, **kwargs)

  monkeypatch.setattr(train, 'train_step', counting)
  fit(small_config(steps=(3, 3)), tmp_path)
  assert len(traces) == 2
