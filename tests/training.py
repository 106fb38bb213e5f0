"""A small pre-training task on made-up batches, for the tests of training."""

import contextlib
import dataclasses
import functools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import flatten
from bert_jax.parallel import device_mesh
from bert_jax.pretraining import pretrain
from bert_jax.trainer import gradient, optimizer, programs, task
from bert_jax.trainer.fit import fit
from bert_jax.trainer.step import init_state, jit_rates, train_step
from bert_jax.workdir import log

ROWS, LENGTH, PREDICTIONS, VOCAB = 8, 6, 3, 11


def small_config(steps=(6,), **changes):
  """Returns the config of a small run.

  The learning rate depends on the number of steps: runs of six in all, in
  however many phases, share their compiled programs.
  """
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


class Bar:
  """A terminal that keeps its lines."""

  def __init__(self):
    self.lines = []

  def write(self, line):
    self.lines.append(line)

  def update(self, n):
    pass


def take(batch, rows):
  return {name: x[rows] for name, x in batch.items()}


_OWN = 'checkpoint.', 'eval.', 'finetuning.', 'log.', 'optimizer.', 'phases.'
_OBJECTIVES: dict = {}
_STARTS: dict = {}
_RESULTS: dict = {}


def make_objective(c, how=None, phase=None):
  """Returns that of pre-training, for `make_batch`, with round figures.

  It is the same object for configs of the same model, so that `sharing` knows it.
  """
  del phase
  fields = flatten(c).items()
  key = repr([x for x in fields if not x[0].startswith(_OWN)]), how
  if key not in _OBJECTIVES:
    c = c.copy_and_resolve_references()
    _OBJECTIVES[key] = _make_objective(c, how)
  return _OBJECTIVES[key]


def _make_objective(c, how):
  return dataclasses.replace(
    pretrain.make_objective(c, how=how),
    computed_as=functools.partial(make_objective, c),
    batch_shapes=lambda phase, rows: {
      name: jax.ShapeDtypeStruct(x.shape, x.dtype)
      for name, x in make_batch(0, rows).items()
    },
    flops=lambda phase: 1e6,
    expected_loss=math.log(VOCAB) + math.log(2),
  )


def make_task(c, batch=make_batch, **changes):
  made = task.Task(
    objective=make_objective(c),
    train_batch=lambda phase, step, rows: take(batch(step), rows),
    eval_batch=lambda phase, i, rows: take(make_batch(1000 + i), rows),
    eval_batches=lambda phase: 2,
    describe=lambda batch: [f'{len(batch["input_ids"])} rows'],
    facts={'unigram_entropy': 2.0},
    derive=pretrain.derive,
    word=pretrain.word,
  )
  return dataclasses.replace(made, **changes)


def train(c, workdir, **changes):
  with sharing():
    return fit(c, make_task(c, **changes), str(workdir))[0]


@contextlib.contextmanager
def sharing():
  """Lets runs of the body have the compiled programs of earlier ones."""
  list_start, compile_run = programs.list_start, programs.compile_run

  def name(c, objective, mesh, phase=None):
    what = sum(c.phases.steps), c.phases.learning_rates, c.phases.warmups
    if phase:
      least = min(phase.steps, 1)
      what = dataclasses.replace(phase, number=0, first=0, steps=least)
    known = repr((c.optimizer, c.rng, what))
    return id(objective), mesh, known, device_mesh.group_writers(mesh)

  def start(c, objective, mesh):
    key = name(c, objective, mesh)
    if key not in _STARTS:
      _STARTS[key] = objective, list_start(c, objective, mesh)
    return _STARTS[key][1]

  def compile_new(c, objective, mesh, start, phases, say):
    keys = {phase: name(c, objective, mesh, phase) for phase in phases}
    keys[None] = *name(c, objective, mesh), *(x.name for x in start)
    new = [x for x in phases if keys[x] not in _RESULTS]
    if new or keys[None] not in _RESULTS:
      more = compile_run(c, objective, mesh, start, new, say)
      _RESULTS.update({keys[phase]: x for phase, x in more.items()})
    return {phase: _RESULTS[key] for phase, key in keys.items()}

  with mock.patch.multiple(programs, list_start=start, compile_run=compile_new):
    yield


def train_until(c, workdir, step, **changes):
  """Trains until a step whose batch cannot be made."""

  with pytest.raises(OSError, match='pulled out'):
    train(c, workdir, batch=fail_at(step), **changes)


def fail_at(step):
  """Returns `make_batch` that fails at a step."""

  def make(number):
    if number == step:
      raise OSError('the disk was pulled out')
    return make_batch(number)

  return make


@contextlib.contextmanager
def noting_compilations():
  """Yields a list that gets the name of each function that is compiled."""
  names = []

  def listen(event, seconds, **details):
    if event == '/jax/core/compile/backend_compile_duration':
      names.append(details['fun_name'])

  jax.monitoring.register_event_duration_secs_listener(listen)
  try:
    yield names
  finally:
    jax.monitoring.unregister_event_duration_listener(listen)


def rows_of(workdir, kind):
  found = log.read(str(workdir / 'metrics.jsonl'))
  return [r for r in found if r['kind'] == kind]


def make_step(dropout=0.0, parts=1, mesh=None, **fields):
  """Returns (state, jitted step) before the sixth of a hundred updates.

  Args:
    fields: of the section `optimizer`.
  """
  mesh = mesh or device_mesh.make_mesh(devices=jax.devices()[:1])
  given = tuple(fields.items())
  return make_state(given), _jit_step(dropout, parts, mesh, given)


@functools.cache
def make_state(fields=()):
  c = small_config()
  c.optimizer.update(dict(fields))
  made, tx = make_objective(c), optimizer.make(c.optimizer)
  init = functools.partial(init_state, objective=made, tx=tx)
  return jax.jit(init)(jax.random.key(0)).replace(step=jnp.int32(5))


@functools.cache
def _jit_step(dropout, parts, mesh, fields):
  c = small_config(
    (100,), model__dropout=dropout, model__attention_dropout=dropout
  )
  c.optimizer.update(dict(fields))
  how = gradient.Update(
    objective=make_objective(c),
    mesh=mesh,
    tx=optimizer.make(c.optimizer),
    parts=parts,
    reduce_dtype=c.optimizer.reduce_dtype,
  )
  schedule = optimizer.make_schedule(c.optimizer, c.phases)
  rates = jit_rates(schedule, how.mesh)(0)
  return jax.jit(functools.partial(train_step, rates=rates, update=how))
