"""Each head of fine-tuning trains as in transformers, on either body.

A BERT-Tiny with random weights is exported and trained on 100 batches, without
dropout. Rows are of different lengths; those of spans are full, since
transformers lets padding compete with the tokens for the answer.
"""

import functools

import jax
import numpy as np
import pytest

from bert_jax import tasks
from bert_jax.config import apply_arguments, model_config, recipes
from bert_jax.inference import fine_tuned
from bert_jax.interop import hugging_face
from bert_jax.model import classifier, parameters
from bert_jax.parallel import device_mesh
from bert_jax.tokenization import tokenizer
from bert_jax.trainer import gradient, task
from bert_jax.trainer.optimizer import make, make_schedule
from bert_jax.trainer.step import init_state, jit_rates, train_step

STEPS, ROWS, LENGTH, VOCAB = 100, 16, 48, 512
MOST = 1e-4
CLASSES, CHOICES = 3, 4
KINDS = {
  'classification': 'BertForSequenceClassification',
  'tagging': 'BertForTokenClassification',
  'choice': 'BertForMultipleChoice',
  'spans': 'BertForQuestionAnswering',
}


MODERN = {
  'body': 'modern',
  'norm': 'pre',
  'norm_epsilon': 1e-5,
  'window': 16,  # of rows of up to 48 tokens
  'num_layers': 3,
  'pooling': 'mean',
}


def get_config(head, body):
  """Returns BERT-Tiny with a head, by the profile hf."""
  c = apply_arguments(
    recipes.finetuning('tiny'),
    'profile=hf,model.dropout=0,attention_dropout=0,head_dropout=0,'
    # With 1e-8, transformers' default, Adam turns rounding errors of gradients
    # that are nearly 0 into updates of full size.
    f'optimizer.epsilon=1e-6,learning_rate=1e-4,warmup_steps={STEPS // 5}',
  )
  c.task, c.data.vocab_size = head, VOCAB
  c.finetuning.outputs = {'spans': 2, 'choice': 1}.get(head, CLASSES)
  c.model.max_positions = 64
  c.phases.update(seq_length=(LENGTH,), steps=(STEPS,), batch_size=(ROWS,))
  c.compute.attention = 'xla'
  if body == 'modern':
    c.model.update(MODERN)
  return c


def make_batch(head, number):
  """Returns a batch in which the labels follow from the tokens."""
  random = np.random.default_rng(number)
  shape = (ROWS, CHOICES) if head == 'choice' else (ROWS,)
  lengths = random.integers(8, LENGTH + 1, shape)
  if head == 'spans':
    lengths[:] = LENGTH
  mask = (np.arange(LENGTH) < lengths[..., None]).astype(np.int32)
  ids = (random.integers(5, VOCAB, mask.shape) * mask).astype(np.int32)
  segments = mask * (np.arange(LENGTH) >= 6)
  batch = {'input_ids': ids, 'input_mask': mask, 'segment_ids': segments}
  weights = np.ones(ROWS, np.float32)
  if head == 'classification':
    labels = ids[:, 1] % CLASSES
  elif head == 'choice':
    labels = ids[:, :, 6].argmin(-1)
  elif head == 'tagging':
    labels = ids % CLASSES
    weights = (mask * (random.random(mask.shape) < 0.5)).astype(np.float32)
  else:
    first = random.integers(6, LENGTH - 4, ROWS)
    labels = np.stack([first, first + random.integers(0, 3, ROWS)], -1)
    labels[random.random(ROWS) < 0.2] = 0  # no answer
    row, answered = np.arange(ROWS), labels[:, 0] > 0
    for column, word in ((0, 7), (1, 9)):
      ids[row[answered], labels[answered, column]] = word
    batch['starts'] = np.tile(np.int32([6, LENGTH - 1]), (ROWS, 1))
  return batch | {'labels': labels.astype(np.int32), 'label_weights': weights}


def start(c, folder):
  """Exports a model with random weights; returns (objective, first state)."""
  objective = tasks.get(c).make_objective(c)
  state = init_state(
    jax.random.key(0), objective=objective, tx=make(c.optimizer)
  )
  params = parameters.drop_padding_rows(jax.device_get(state.params), VOCAB)
  layer, transform = params.pop('classifier'), params.pop('head', None)
  names = () if c.task == 'choice' else tuple(f'L{i}' for i in range(CLASSES))
  spans = classifier.Spans(128, 64, 30, None) if c.task == 'spans' else None
  head = classifier.Head(
    *(layer['kernel'], layer['bias'], names, LENGTH, (), c.task),
    settings=spans,
    transform=transform,
  )
  words = (*tokenizer.SPECIAL, *(f'w{i}' for i in range(VOCAB - 5)))
  bert, words = model_config(c), tokenizer.Tokenizer(words)
  hugging_face.export(folder, params, bert, words, head=head)
  return objective, state


def train(c, objective, state, batches, last):
  """Returns (losses before each update, logits of `last` before and after)."""
  (phase,) = task.list_phases(c)
  mesh = device_mesh.make_mesh(devices=jax.devices()[:1])
  how = gradient.make_update(c.optimizer, objective, phase, mesh)
  rates = jit_rates(make_schedule(c.optimizer, c.phases), mesh)(0)
  step = jax.jit(functools.partial(train_step, rates=rates, update=how))
  module = fine_tuned.make_module(c, model_config(c))
  apply, losses, shape = jax.jit(module.apply), [], last['input_ids'].shape
  if c.task == 'choice':
    names = 'input_ids', 'input_mask', 'segment_ids'
    last = {name: last[name].reshape(-1, LENGTH) for name in names}
  logits = [apply({'params': state.params}, last)]
  for batch in batches:
    state, metrics = step(state, batch, jax.random.key(0))
    total, count = metrics['sums'][objective.losses[0]]
    losses.append(float(total) / float(count))
  logits.append(apply({'params': state.params}, last))
  logits = np.stack(logits)
  if c.task == 'choice':
    logits = logits.reshape(2, *shape[:2])
  return np.array(losses), logits


@pytest.mark.parametrize('body', ['classic', 'modern'])
@pytest.mark.parametrize('head', KINDS)
def test_losses_and_logits_agree(tmp_path, in_transformers, head, body):
  c, model = get_config(head, body), str(tmp_path / 'model')
  batches = [make_batch(head, i) for i in range(STEPS + 1)]
  objective, state = start(c, model)
  here, logits = train(c, objective, state, batches[:-1], batches[-1])
  kind = 'Modern' * (body == 'modern') + KINDS[head]
  job = {'head': head, 'kind': kind, 'model': model}
  job['optimizer'] = c.optimizer.to_dict()
  arrays = {name: np.stack([x[name] for x in batches]) for name in batches[0]}
  there = in_transformers('finetune', job, arrays)
  off = np.abs(logits - there['logits'])
  if head in ('tagging', 'spans'):  # of tokens, without those of padding
    off = off[:, batches[-1]['input_mask'] > 0]
  loss = float(np.abs(here - there['losses']).max())
  before, after = (float(x.max()) for x in off)
  print(f'{body}, {head}: loss {here[0]:.4f} at first, {here[-1]:.4f} at last')
  print(f'losses differ by {loss:.1e} at most over {STEPS} updates')
  print(f'logits differ by {before:.1e} before, {after:.1e} after')
  assert max(loss, before, after) <= MOST
