"""Fine-tunes and predicts with the Trainer of transformers.

See ../finetuning.py. The second argument of the command is one of

  make: writes the model, with random weights, that all start from.
  train: dynamic padding, rows in random order.
  train_grouped: rows of similar length share a batch.
  predict: dynamic padding, rows in their order.
  predict_sorted: rows from the shortest to the longest.

A third, compile, compiles the model.
"""

import os
import sys
import tempfile

import numpy as np
import pipe
import torch
import transformers
import turns as turns_lib


def describe() -> dict:
  """Returns the facts about this process."""
  return {
    'versions': f'transformers {transformers.__version__}, '
    f'torch {torch.__version__}',
    'device': 'cpu',
  }


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
    rows['ends'].tolist(), rows['firsts'].tolist(), rows['labels'].tolist(),
    strict=True,
  ):  # fmt: skip
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


class Trainer(transformers.Trainer):
  """Remembers the last loss."""

  loss = None

  def training_step(self, *args, **kwargs):
    self.loss = super().training_step(*args, **kwargs)
    return self.loss


class Callback(transformers.TrainerCallback):
  """Takes turns after each step of a trainer."""

  def __init__(self, turns, trainer):
    self._turns, self._trainer = turns, trainer

  def on_step_end(self, args, state, control, **others):
    del args, state, control, others
    self._turns.end_step(describe, lambda: self._trainer.loss.item())


def make_trainer(settings, folder, note_batch=None, **more):
  """Returns a trainer of the settings.

  Args:
    settings: see ../finetuning.py.
    folder: of its files.
    note_batch: called with the attention mask of each batch.
    **more: further transformers.TrainingArguments.
  """
  c = settings['config']
  words = transformers.BertTokenizerFast.from_pretrained(settings['model'])
  pad = transformers.DataCollatorWithPadding(words)

  def collate(features):
    batch = pad(features)
    if note_batch:
      note_batch(batch['attention_mask'].numpy())
    return batch

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
    **more,
  )
  model = get_class(settings).from_pretrained(
    settings['model'], attn_implementation='sdpa'
  )
  return Trainer(model, arguments, collate, read_rows(settings))


def train(settings: dict, folder: str, **more):
  """Trains, in turns."""
  turns, count = turns_lib.Turns(), iter(range(1 << 31))

  def note_batch(mask):
    turns.note_batch(next(count), mask)

  trainer = make_trainer(settings, folder, note_batch, **more)
  trainer.add_callback(Callback(turns, trainer))
  trainer.train()


def predict(settings: dict, folder: str, by_length: bool, **more):
  """Computes the outputs of all rows, in turns."""
  trainer = make_trainer(settings, folder, **more)
  rows = trainer.train_dataset
  if by_length:
    rows = sorted(rows, key=lambda row: len(row['input_ids']))

  def run(times):
    for _ in range(times):
      found = trainer.predict(rows).predictions
    if isinstance(found, tuple):  # starts and ends [N, S]: those of [CLS]
      found = np.stack([x[:, 0] for x in found[:2]])
    return float(np.abs(found).mean())

  pipe.serve(describe(), run)


def main():
  settings = pipe.settings()
  way, *rest = sys.argv[2:]
  more = {'torch_compile': True} if rest == ['compile'] else {}
  if way == 'make':
    return make(settings)
  with tempfile.TemporaryDirectory() as folder:
    if way.startswith('predict'):
      predict(settings, folder, way == 'predict_sorted', **more)
    else:
      grouped = way == 'train_grouped'
      train(settings, folder, group_by_length=grouped, **more)


if __name__ == '__main__':
  main()
