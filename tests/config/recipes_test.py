"""Tests of the recipes, and of the files in configs/."""

import glob
import math
import os
import runpy

import jax
import pytest

from bert_jax import config, config_check, errors, tasks
from bert_jax.trainer import task
from tests import models

CONFIGS = sorted(
  path
  for path in glob.glob(
    os.path.join(os.path.dirname(__file__), '../../configs/*.py')
  )
  if not path.endswith('tables.py')  # which holds the tables of many runs
)


_OF_TOKENS = 'steps', 'batch_size', 'seq_length'


def load(path, *arguments):
  return runpy.run_path(path)['get_config'](*arguments)


@pytest.mark.parametrize('path', CONFIGS, ids=os.path.basename)
def test_every_config_can_work_and_is_documented(path):
  # Any config may go on from a model; configs/domain.py has to.
  model = {'init_from': 'MODEL'} if path.endswith('domain.py') else {}
  c = load(path)
  c.update(model)
  config_check.check(c)
  sizes = {
    'table6.py': '3x768x12,',
    'compact.py': 'small,',
    'baselines.py': 'ltr,',
    'budget.py': 'cpu_quarter,',
    'modern.py': '17m,',
    'glue.py': 'rte,',
    'klue.py': 'ynat,',
  }
  size = sizes.get(os.path.basename(path), '')
  c = load(path, size + 'smoke')
  # In the modern body there is none, also since kernels for TPUs have none.
  assert c.model.attention_dropout == (0.1 if c.model.body == 'classic' else 0)
  c.update(model)
  config_check.check(c)
  with open(path, encoding='utf-8') as file:
    assert f'--config=configs/{os.path.basename(path)}' in file.read()


def test_the_papers_recipe():
  for size in ('base', 'large'):
    c = load(next(p for p in CONFIGS if p.endswith(f'{size}.py')))
    assert sum(c.phases.steps) == 1_000_000
    assert c.phases.seq_length == (128, 512)
    assert c.phases.steps == (900_000, 100_000)
    assert c.phases.batch_size == (256, 256)
    assert c.phases.max_predictions == (20, 76)
    assert c.optimizer.to_dict() == {
      'algorithm': 'adamw',
      'learning_rate': 1e-4,
      'warmup_steps': 10_000,
      'schedule': 'linear',
      'decay_steps': 0,
      'b1': 0.9,
      'b2': 0.999,
      'epsilon': 1e-6,
      'bias_correction': True,
      'weight_decay': 0.01,
      'clip_norm': 1.0,
      'clip_unit': 'batch',
      'decay_from': 'warmup',
      'freeze': '',
      'reduce_dtype': 'float32',
    }
    assert (c.model.dropout, c.model.attention_dropout) == (0.1, 0.1)


def test_each_budget_costs_the_flops_that_its_table_says():
  path = next(p for p in CONFIGS if p.endswith('budget.py'))
  with open(path, encoding='utf-8') as file:
    lines = [x.split() for x in file if x[:3] in ('cpu', 'gpu', 'v5e')]
  assert len(lines) == 4
  for budget, _, flops, *_ in lines:
    c = load(path, budget)
    config_check.check(c)
    c.compute.last_layer = 'predicted' if budget[:3] == 'cpu' else 'all'
    objective, steps = tasks.get(c).make_objective(c), sum(c.phases.steps)
    work = task.count_work(objective, task.list_phases(c), steps)
    assert work['flops'] == pytest.approx(float(flops), rel=0.01)


def test_another_body_costs_what_berts_does():
  path = next(p for p in CONFIGS if p.endswith('budget.py'))
  for budget in ('cpu_quarter', 'cpu_hour', 'v5e4_day'):
    ours, theirs = (
      config.model_config(load(path, budget + more))
      for more in ('', ',body=modern')
    )
    assert load(path, f'{budget},body=modern').data.rows == 'full_sentences'
    assert theirs.modern and theirs.num_layers == ours.num_layers
    # Without NSP's pooler, whose cost is that of a token.
    found, expected = (x.flops_per_sequence(64, 10) for x in (theirs, ours))
    assert found == pytest.approx(expected, rel=0.01)


def test_another_body_leaves_what_was_asked_for_to_be_refused():
  path = next(p for p in CONFIGS if p.endswith('baselines.py'))
  c = load(path, 'ltr,body=modern')
  with pytest.raises(errors.UserError, match='needs objective.kind=mlm, not l'):
    config_check.check(c)


def test_modern_sizes_have_the_parameters_that_its_table_says():
  path = next(p for p in CONFIGS if p.endswith('modern.py'))
  with open(path, encoding='utf-8') as file:
    lines = [x.split() for x in file if x.endswith(('ModernBERT\n', 'Ettin\n'))]
  assert len(lines) == 7
  for size, layers, hidden, mlp, heads, parameters, *_ in lines:
    c = load(path, size)
    config_check.check(c)
    m = c.model
    found = m.num_layers, m.hidden_size, m.mlp_size, m.num_heads
    assert found == (*map(int, (layers, hidden, mlp, heads)),)
    shapes = models.shapes(config.model_config(c), with_nsp=False)
    count = sum(x.size for x in jax.tree.leaves(shapes))
    assert f'{count:,}' == parameters
    tokens = zip(*(c.phases[x] for x in _OF_TOKENS), strict=True)
    assert sum(map(math.prod, tokens)) == pytest.approx(2e12, rel=1e-3)


def test_a_decay_keeps_its_share_of_the_steps():
  c = config.pretraining('base')
  c.optimizer.update(schedule='wsd', decay_steps=100_000)
  config.apply_arguments(c, 'steps=500')
  assert (c.optimizer.warmup_steps, c.optimizer.decay_steps) == (5, 50)


def test_only_what_differs_from_the_defaults_of_the_task_is_shown():
  assert config.describe(config.declare_fields()).strip() == ''
  assert config.describe(config.finetuning()).strip() == ''
  c = config.finetuning()
  c.data.input, c.phases.steps = 'my file.csv', (22, 3)
  c.model.num_layers, c.model.hidden_size, c.seed = 3, 96, 7
  c.log.every = c.eval.every = c.checkpoint.every = 3  # no matter of the result
  assert config.describe(c) == (
    "  data.input='my file.csv' model.hidden_size=96 model.num_layers=3\n"
    '  phases.steps=(22, 3) seed=7'
  )
  c = config.apply_arguments(config.pretraining('base'), 'smoke,steps=30')
  c.phases.learning_rates, c.phases.warmups = (1e-3, 0.0), (4, 0)
  for name in ('finetuning', 'optimizer', 'accumulate'):  # have no effect
    assert name not in config.describe(c)


def test_a_size_is_a_name_or_numbers():
  c = config.apply_arguments(config.pretraining('base'), 'size=2x96x3')
  sizes = 'num_layers', 'hidden_size', 'num_heads', 'mlp_size'
  assert [c.model[name] for name in sizes] == [2, 96, 3, 384]
  assert c.objective.word_vectors


@pytest.mark.parametrize('file', ['glue.py', 'klue.py'])
def test_a_task_that_there_is_not_is_refused_with_those_there_are(file):
  path = next(p for p in CONFIGS if p.endswith(f'/{file}'))
  with pytest.raises(errors.UserError, match='rtee.* one of .*nli'):
    load(path, 'rtee')
