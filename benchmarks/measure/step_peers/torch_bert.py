"""Trains BertForPreTraining or ModernBertForMaskedLM of transformers in PyTorch.

See ../step.py. The second argument of the command is eager or compile. With a
third, gathered, only the masked positions are decoded.
"""

import inspect
import itertools
import re
import sys

import numpy as np
import pipe
import torch
import transformers

# Names here, and those of the model's arguments.
FEATURES = {
  'input_ids': 'input_ids',
  'input_mask': 'attention_mask',
  'segment_ids': 'token_type_ids',
  'labels': 'labels',
  'next_sentence_labels': 'next_sentence_label',
}


def optimizer(model, c):
  """Returns (AdamW, schedule)."""
  groups = [{'params': []}, {'params': [], 'weight_decay': 0.0}]
  for name, parameter in model.named_parameters():
    groups[bool(re.search('[nN]orm|bias', name))]['params'].append(parameter)
  tx = torch.optim.AdamW(
    groups,
    lr=c['optimizer.learning_rate'],
    betas=(c['optimizer.b1'], c['optimizer.b2']),
    eps=c['optimizer.epsilon'],
    weight_decay=c['optimizer.weight_decay'],
    fused=True,
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    tx, c['optimizer.warmup_steps'], sum(c['phases.steps'])
  )
  return tx, schedule


def make_model(named):
  """Makes a model from the content of its config.json."""
  if named.get('model_type') == 'modernbert':
    config = transformers.ModernBertConfig(**named, attn_implementation='sdpa')
    config.reference_compile = False  # the whole model is compiled, or nothing
    return transformers.ModernBertForMaskedLM(config)
  how = {'hidden_act': 'gelu_pytorch_tanh', 'attn_implementation': 'sdpa'}
  config = transformers.BertConfig(**named, **how)
  return transformers.BertForPreTraining(config)


def read_batches(path, device, names):
  """Returns a list of arguments of the model, of those that it takes."""
  with np.load(path) as file:
    stacked = {
      name: torch.tensor(file[k])
      for k, name in FEATURES.items()
      if name in names
    }
  if stacked['attention_mask'].all():
    del stacked['attention_mask']  # a mask keeps the fastest attention away
  return [
    {name: x[i].long().to(device) for name, x in stacked.items()}
    for i in range(len(stacked['input_ids']))
  ]


class Gathered(torch.nn.Module):
  """The model, whose MLM head sees the masked positions only."""

  def __init__(self, model):
    super().__init__()
    self.model = model

  def forward(self, positions, masked_ids, next_sentence_label, **features):
    found = self.model.bert(**features)
    index = positions[..., None].expand(-1, -1, found[0].shape[-1])
    chosen = torch.gather(found[0], 1, index)  # [B, P, D]
    words, pairs = self.model.cls(chosen, found[1])
    loss = torch.nn.functional.cross_entropy(
      words.flatten(0, 1).float(), masked_ids.flatten(), ignore_index=-100
    ) + torch.nn.functional.cross_entropy(pairs.float(), next_sentence_label)
    return {'loss': loss}


def read_positions(path, device):
  """Returns a list of {positions, masked_ids} [B, P]; -100 where unused."""
  with np.load(path) as file:
    positions = file['masked_lm_positions']
    ids = np.where(file['masked_lm_weights'] == 1, file['masked_lm_ids'], -100)
  return [
    {
      'positions': torch.tensor(p).long().to(device),
      'masked_ids': torch.tensor(i).long().to(device),
    }
    for p, i in zip(positions, ids, strict=True)
  ]


def trainer(settings, compiled, device, gathered=False):
  """Returns (steps) -> loss of the last step."""
  c = settings['config']
  torch.manual_seed(c['seed'])
  model = make_model(settings['transformers']).to(device).train()
  tx, schedule = optimizer(model, c)
  names = inspect.signature(model.forward).parameters
  batches = read_batches(settings['batches'], device, names)
  forward = model
  if gathered:
    forward = Gathered(model)
    for batch, masked in zip(
      batches, read_positions(settings['batches'], device), strict=True
    ):
      del batch['labels']
      batch.update(masked)
  if compiled:
    forward = torch.compile(forward, dynamic=False)
  source = itertools.cycle(batches)
  half = c['model.dtype'] == 'bfloat16'

  def train(steps):
    for _ in range(steps):
      with torch.autocast(device, torch.bfloat16, enabled=half):
        loss = forward(**next(source))['loss']
      loss.backward()
      torch.nn.utils.clip_grad_norm_(
        model.parameters(), c['optimizer.clip_norm']
      )
      tx.step()
      schedule.step()
      tx.zero_grad()
    return loss.item()

  return train


def main():
  settings = pipe.settings()
  device, name = 'cpu', 'cpu'
  if settings['device'] == 'gpu':
    device, name = 'cuda', torch.cuda.get_device_name()
  facts = {
    'versions': f'transformers {transformers.__version__}, '
    f'torch {torch.__version__}',
    'device': name,
  }
  # Free the memory for the others' turns.
  way, *rest = sys.argv[2:]
  train = trainer(settings, way == 'compile', device, rest == ['gathered'])
  pipe.serve(facts, train, after=torch.cuda.empty_cache)


if __name__ == '__main__':
  main()
