"""Fine-tunes and predicts with the Trainer of transformers.

See ../finetuning.py. The second argument of the command is `make`, which writes
the model that both start from, or `train`, which prints rows/s as JSON: with the
Trainer's dynamic padding, rows in random order.
"""

import os
import sys
import tempfile
import time

import numpy as np
import pipe
import torch
import transformers

WARM = 8  # updates that are not timed


def get_class(settings):
  """Returns the class of the task's model."""
  if settings['config']['task'] == 'spans':
    return transformers.BertForQuestionAnswering
  return transformers.BertForSequenceClassification


def make(settings: dict):
  """Writes a model with random weights, and its vocabulary."""
  torch.manual_seed(0)
  config = transformers.BertConfig(
    **settings['transformers'], hidden_act='gelu_pytorch_tanh'
  )
  get_class(settings)(config).save_pretrained(settings['model'])
  words = transformers.BertTokenizerFast(vocab_file=settings['vocab'])
  words.save_pretrained(settings['model'])


def read_rows(settings: dict) -> list[dict]:
  """Returns the rows that bert_jax encoded, as features of transformers."""
  with np.load(os.path.join(settings['data'], 'train.npz')) as file:
    rows = dict(file)
  found, begin = [], 0
  for end, first, label in zip(
    *(rows[x].tolist() for x in ('ends', 'firsts', 'labels')),
    strict=True,
  ):
    size = end - begin
    row = {
      'input_ids': rows['ids'][begin:end].tolist(),
      'token_type_ids': [0] * first + [1] * (size - first),
      'attention_mask': [1] * size,
    }
    if isinstance(label, list):
      row['start_positions'], row['end_positions'] = label
    else:
      row['label'] = label
    found.append(row)
    begin = end
  return found


class Clock(transformers.TrainerCallback):
  """Notes when each update ends."""

  def __init__(self):
    self.ends = []

  def on_step_end(self, args, state, control, **others):
    del args, state, control, others
    self.ends.append(time.perf_counter())


def train(settings: dict, folder: str):
  """Trains and predicts; returns {part: rows/s}."""
  c, rows, clock = settings['config'], read_rows(settings), Clock()
  words = transformers.BertTokenizerFast.from_pretrained(settings['model'])
  arguments = transformers.TrainingArguments(
    folder,
    use_cpu=True,
    seed=c['seed'],
    learning_rate=c['optimizer.learning_rate'],
    warmup_steps=c['optimizer.warmup_steps'],
    weight_decay=c['optimizer.weight_decay'],
    adam_beta1=c['optimizer.b1'],
    adam_beta2=c['optimizer.b2'],
    adam_epsilon=c['optimizer.epsilon'],
    max_grad_norm=c['optimizer.clip_norm'],
    max_steps=c['phases.steps'][0],
    per_device_train_batch_size=c['phases.batch_size'][0],
    per_device_eval_batch_size=settings['predict_batch'],
    logging_steps=c['log.every'],
    save_strategy='no',
    report_to='none',
    disable_tqdm=True,
  )
  model = get_class(settings).from_pretrained(
    settings['model'], attn_implementation='sdpa'
  )
  pad = transformers.DataCollatorWithPadding(words)
  trainer = transformers.Trainer(model, arguments, pad, rows, callbacks=[clock])
  trainer.train()
  timed = clock.ends[WARM:]
  count = (len(timed) - 1) * c['phases.batch_size'][0]
  trainer.predict(rows)
  begin = time.perf_counter()
  trainer.predict(rows)
  predicted = len(rows) / (time.perf_counter() - begin)
  return {'train': count / (timed[-1] - timed[0]), 'predict': predicted}


def main():
  settings = pipe.settings()
  if sys.argv[2] == 'make':
    return make(settings)
  answer = pipe.open_answers()
  with tempfile.TemporaryDirectory() as folder:
    answer(train(settings, folder))


if __name__ == '__main__':
  main()
