"""What transformers and PyTorch compute, run by an interpreter that has them.

  PYTHON in_transformers.py FUNCTION FOLDER

conftest.py starts it. A function takes the job, from FOLDER/job.json, and the
arrays of FOLDER/arrays.npz; the arrays that it returns go to FOLDER/found.npz.
"""

import json
import os
import re
import sys

import numpy as np
import torch
import transformers

# Names here, and those of the arguments of transformers' models.
INPUTS = {
  'input_ids': 'input_ids',
  'input_mask': 'attention_mask',
  'segment_ids': 'token_type_ids',
}


def load(model, kind):
  """Returns a model in float32 whose weights all have been found."""
  names = 'hidden_dropout_prob', 'attention_probs_dropout_prob'
  if kind.startswith('Modern'):
    names = ('attention_dropout',)
  bert, info = getattr(transformers, kind).from_pretrained(
    model,
    output_loading_info=True,
    dtype=torch.float32,
    **dict.fromkeys(names, 0.0),
  )
  wrong = {key: sorted(value) for key, value in info.items() if value}
  if wrong:
    sys.exit(f'error: {kind} loaded with {wrong}')
  return bert.eval()


def get_inputs(arrays, rows=...):
  return {
    theirs: torch.tensor(arrays[ours][rows]).long()
    for ours, theirs in INPUTS.items()
  }


def put_labels(arrays):
  """Returns the ids to predict, -100 elsewhere, [..., S]."""
  labels = np.full(arrays['input_ids'].shape, -100)
  # A position that is not used is 0, where the label stays.
  ids = np.where(
    arrays['masked_lm_weights'] == 1, arrays['masked_lm_ids'], -100
  )
  np.put_along_axis(labels, arrays['masked_lm_positions'], ids, -1)
  return torch.tensor(labels)


def descend(bert, fields, steps, compute):
  """Trains by AdamW with the linear schedule of transformers.

  Args:
    bert: the model.
    fields: of our config, `optimizer`.
    steps: number of updates.
    compute: (step) -> (loss, numbers to keep).

  Returns:
    What was kept of each step, float [steps, ...].
  """
  groups = [{'params': []}, {'params': [], 'weight_decay': 0.0}]
  for name, parameter in bert.named_parameters():
    groups[bool(re.search('[Nn]orm|bias', name))]['params'].append(parameter)
  tx = torch.optim.AdamW(
    groups,
    lr=fields['learning_rate'],
    betas=(fields['b1'], fields['b2']),
    eps=fields['epsilon'],
    weight_decay=fields['weight_decay'],
  )
  schedule = transformers.get_linear_schedule_with_warmup(
    tx, fields['warmup_steps'], steps
  )
  kept = []
  for step in range(steps):
    loss, numbers = compute(step)
    kept.append(numbers)
    tx.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(bert.parameters(), fields['clip_norm'])
    tx.step()
    schedule.step()
  return np.array(kept)


def differentiate(job, arrays):
  """Returns random weights, their gradient, and what the model computes."""
  torch.manual_seed(0)
  # The other implementations of attention return no probabilities.
  config = transformers.BertConfig(**job, attn_implementation='eager')
  bert = transformers.BertForPreTraining(config).eval()
  with torch.no_grad():  # no bias stays 0 and no scale 1, or they could hide
    for parameter in bert.parameters():
      parameter += 0.02 * torch.randn_like(parameter)
  out = bert(
    **get_inputs(arrays),
    labels=put_labels(arrays),
    next_sentence_label=torch.tensor(arrays['next_sentence_labels']),
    output_hidden_states=True,
    output_attentions=True,
  )
  out.loss.backward()
  at = torch.tensor(arrays['masked_lm_positions'])[..., None]
  found = {
    'loss': out.loss,
    'pooled': bert.bert.pooler(out.hidden_states[-1]),
    'mlm': torch.take_along_dim(out.prediction_logits, at, 1),
    'nsp': out.seq_relationship_logits,
  }
  found |= {f'hidden_{i}': x for i, x in enumerate(out.hidden_states)}
  found |= {f'probabilities_{i}': x for i, x in enumerate(out.attentions)}
  found = {f'found/{name}': x for name, x in found.items()}
  for name, x in bert.named_parameters():
    found |= {f'weights/{name}': x, f'gradient/{name}': x.grad}
  return {name: x.detach().numpy() for name, x in found.items()}


def pretrain(job, arrays):
  """Returns the MLM and NSP loss before each update, [steps, 2]."""
  config = transformers.BertConfig(
    **job['transformers'],
    hidden_act='gelu',
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
  )
  bert = transformers.BertForPreTraining(config)
  tied = {'cls.predictions.decoder.weight', 'cls.predictions.decoder.bias'}
  load_weights(bert, arrays, tied)
  labels, nll = put_labels(arrays), torch.nn.CrossEntropyLoss()
  pairs = torch.tensor(arrays['next_sentence_labels']).long()

  def compute(step):
    out = bert(
      **get_inputs(arrays, step),
      labels=labels[step],
      next_sentence_label=pairs[step],
    )
    nsp = nll(out.seq_relationship_logits, pairs[step]).item()
    return out.loss, [out.loss.item() - nsp, nsp]

  steps = len(labels)
  return {'losses': descend(bert, job['optimizer'], steps, compute)}


def load_weights(bert, arrays, tied):
  """Gives a model the arrays named `weights/`, and ties the others."""
  weights = {
    name.removeprefix('weights/'): torch.tensor(x)
    for name, x in arrays.items()
    if name.startswith('weights/')
  }
  missing, unexpected = bert.load_state_dict(weights, strict=False)
  if unexpected or set(missing) - tied:
    sys.exit(f'error: missing {missing}, unexpected {unexpected}')
  bert.tie_weights()


def pretrain_modern(job, arrays):
  """Returns the MLM loss before each update, [steps, 1]."""
  config = transformers.ModernBertConfig(**job['transformers'])
  bert = transformers.ModernBertForMaskedLM(config)
  load_weights(bert, arrays, {'decoder.weight'})
  labels = put_labels(arrays)

  def compute(step):
    inputs = get_inputs(arrays, step)
    del inputs['token_type_ids']
    loss = bert(**inputs, labels=labels[step]).loss
    return loss, [loss.item()]

  return {'losses': descend(bert, job['optimizer'], len(labels), compute)}


def save_modern(job, arrays):
  """Saves a random model; returns its weights, gradients and logits."""
  torch.manual_seed(0)
  config = transformers.ModernBertConfig(**job['transformers'])
  bert = transformers.ModernBertForMaskedLM(config).eval()
  with torch.no_grad():  # logits of 2, and no bias 0 nor scale 1
    for parameter in bert.parameters():
      noise = 0.3 * torch.randn_like(parameter)
      parameter.copy_(
        4 * parameter if parameter.ndim > 1 else parameter + noise
      )
  bert.save_pretrained(job['folder'])
  ids, mask = (torch.tensor(arrays[x]).long() for x in ('ids', 'mask'))
  labels = torch.tensor(arrays['labels']).long()
  out = bert(input_ids=ids, attention_mask=mask, labels=labels)
  out.loss.backward()
  found = {'found/loss': out.loss, 'found/logits': out.logits}
  for name, x in bert.named_parameters():
    found |= {f'weights/{name}': x, f'gradient/{name}': x.grad}
  return {name: x.detach().numpy() for name, x in found.items()}


def load_modern(job, arrays):
  """Returns the tensors of a folder, as transformers loads them."""
  bert = load(job['folder'], 'ModernBertForMaskedLM')
  return {name: x.numpy() for name, x in bert.state_dict().items()}


def finetune(job, arrays):
  """Returns losses before each update; logits of the last batch at both ends."""
  bert = load(job['model'], job['kind']).train()
  if job['kind'].startswith('Modern'):
    INPUTS.pop('segment_ids')
  labels = torch.tensor(arrays['labels']).long()
  if job['head'] == 'tagging':
    labels = labels.where(torch.tensor(arrays['label_weights']) > 0, -100)

  def compute(step):
    given = {'labels': labels[step]}
    if job['head'] == 'spans':
      first, last = labels[step].T
      given = {'start_positions': first, 'end_positions': last}
    loss = bert(**get_inputs(arrays, step), **given).loss
    return loss, loss.item()

  def predict():
    with torch.no_grad():
      out = bert(**get_inputs(arrays, -1))
    if job['head'] == 'spans':
      return torch.stack([out.start_logits, out.end_logits], -1).numpy()
    return out.logits.numpy()

  before = predict()
  losses = descend(bert, job['optimizer'], len(labels) - 1, compute)
  return {'losses': losses, 'logits': np.stack([before, predict()])}


def read_export(job, arrays):
  """Returns logits of masked pairs, the ids of lines, and guessed words."""
  bert = load(job['model'], 'BertForPreTraining')
  words = transformers.AutoTokenizer.from_pretrained(job['model'])
  first, second = zip(*job['pairs'], strict=True)
  encoded = words(
    list(first), list(second), padding='max_length', truncation=True,
    max_length=arrays['input_ids'].shape[1],
  )  # fmt: skip
  with torch.no_grad():
    out = bert(**get_inputs(arrays))
  at = torch.tensor(arrays['masked_lm_positions']).long()[..., None]
  lines = words(job['lines'])['input_ids']
  fill = transformers.pipeline(
    'fill-mask', model=job['model'], top_k=job['most']
  )
  guesses = [[x['token'] for x in fill(line)] for line in job['masked']]
  return {
    'ids': np.array(encoded['input_ids']),
    'segments': np.array(encoded['token_type_ids']),
    'mlm': torch.take_along_dim(out.prediction_logits, at, 1).numpy(),
    'nsp': out.seq_relationship_logits.numpy(),
    'lines': np.concatenate(lines),
    'ends': np.cumsum([*map(len, lines)]),
    'guesses': np.array(guesses),
  }


def load_tokenizer(job):
  if 'folder' in job:
    return transformers.AutoTokenizer.from_pretrained(job['folder'])
  # Transformers 5 renamed the argument, and silently ignores the old name.
  five = int(transformers.__version__.partition('.')[0]) >= 5
  return transformers.BertTokenizerFast(
    **{'vocab' if five else 'vocab_file': job['vocab']},
    do_lower_case=job['lowercase'],
  )


def encode(job, arrays):
  """Encodes texts, or pairs of them, padded to a length."""
  texts = (
    [job['texts']] if job['pairs'] is None else [job['texts'], job['pairs']]
  )
  found = load_tokenizer(job)(
    *texts, padding='max_length', max_length=job['length'], truncation=True
  )
  return {
    ours: np.array(found[theirs], 'i4') for ours, theirs in INPUTS.items()
  }


def make_windows(job, arrays):
  """Encodes the questions of SQuAD's file in windows.

  Returns:
    The `ids` of all windows and their `ends`, and the number of the question of
    each, without questions that are longer than job['query'] tokens.
  """
  with open(job['path'], encoding='utf-8') as file:
    content = json.load(file)
  words, rows, questions = load_tokenizer(job), [], []
  asked = [
    (question['question'], part['context'])
    for article in content['data']
    for part in article['paragraphs']
    for question in part['qas']
  ]
  for number, texts in enumerate(asked):
    n = len(words(texts[0], add_special_tokens=False).input_ids)
    if n > job['query']:
      continue
    found = words(
      *texts,
      max_length=job['length'],
      truncation='only_second',
      # They count the tokens that two windows share.
      stride=max(job['length'] - 3 - n - job['stride'], 0),
      return_overflowing_tokens=True,
    )
    rows += found.input_ids
    questions += [number] * len(found.input_ids)
  ends = np.cumsum([*map(len, rows)])
  return {'ids': np.concatenate(rows), 'ends': ends, 'questions': questions}


def main():
  _, name, folder = sys.argv
  with open(os.path.join(folder, 'job.json'), encoding='utf-8') as file:
    job = json.load(file)
  with np.load(os.path.join(folder, 'arrays.npz')) as file:
    arrays = dict(file)
  found = globals()[name](job, arrays)
  np.savez(os.path.join(folder, 'found.npz'), **found)
  print(f'transformers {transformers.__version__}, torch {torch.__version__}')


if __name__ == '__main__':
  main()
