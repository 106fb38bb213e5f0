"""Which config fields may change when a run is resumed."""

import json

from ml_collections import config_dict

from bert_jax import config as config_lib

# The effect of a changed field: the same result; different rounding or random
# numbers of the same distribution; another experiment.
SAME_RESULT, SAME_MEANING, ANOTHER = 'result', 'meaning', 'another'

# Every field matches exactly one entry; one that ends in a dot is a section.
CLASSES = {
  'seed': ANOTHER,
  'rng': ANOTHER,
  'task': ANOTHER,
  'init_from': ANOTHER,
  'resize_positions': ANOTHER,
  'profile_steps': SAME_RESULT,
  'model.': ANOTHER,
  'data.input': ANOTHER,
  'data.weights': ANOTHER,
  'data.layout': ANOTHER,
  'data.language': ANOTHER,
  'data.field': ANOTHER,
  'data.min_chars': ANOTHER,
  'data.max_documents': ANOTHER,
  'data.vocab': ANOTHER,
  'data.vocab_size': ANOTHER,
  'data.lowercase': ANOTHER,
  'data.passes': ANOTHER,
  'data.short_seq_prob': ANOTHER,
  'data.pack': ANOTHER,
  'data.heldout': ANOTHER,
  'data.shards': ANOTHER,
  'data.workers': SAME_RESULT,
  'data.loader_workers': SAME_RESULT,
  # The same result if no record is corrupt; with one, there is no result
  # without skipping.
  'data.skip_corrupt': SAME_RESULT,
  # The config is checked against the prepared data, which fix them.
  'data.strip_accents': SAME_RESULT,
  'data.negatives': SAME_RESULT,
  # Its data is compared by hash.
  'data.dir': SAME_RESULT,
  'data.text': ANOTHER,
  'data.pair': ANOTHER,
  'data.label': ANOTHER,
  'data.choices': ANOTHER,
  'finetuning.': ANOTHER,
  'objective.': ANOTHER,
  'phases.seq_length': ANOTHER,
  'phases.steps': ANOTHER,
  'phases.batch_size': ANOTHER,
  # Sums are divided once, for any number of micro-batches; see `_classify`.
  'phases.accumulate': SAME_MEANING,
  'phases.max_predictions': ANOTHER,
  'optimizer.': ANOTHER,
  'compute.': SAME_MEANING,
  'mesh.model': SAME_MEANING,
  'eval.': SAME_RESULT,
  'log.': SAME_RESULT,
  'checkpoint.': SAME_RESULT,
}


def find(old: dict, config: config_dict.ConfigDict) -> dict[str, dict]:
  """Finds the fields that differ from a saved config.

  Args:
    old: the saved config as JSON; fields that it lacks have their defaults.

  Returns:
    {class: {field: {'was': value, 'is': value}}} for every class.
  """
  new = _as_json(config)
  old = {**_as_json(config_lib.declare_fields()), **old}
  found = {SAME_RESULT: {}, SAME_MEANING: {}, ANOTHER: {}}
  for name in sorted({*old, *new}):
    was, now = old.get(name), new.get(name)
    if was != now:
      found[_classify(name, config)][name] = {'was': was, 'is': now}
  return found


def describe(changed: dict) -> str:
  """Returns 'seed was 0, is 3; ...' for fields of one class of `find`."""
  return '; '.join(
    f'{name} was {values["was"]!r}, is {values["is"]!r}'
    for name, values in changed.items()
  )


def _classify(name: str, config) -> str:
  # With this unit, each micro-batch is clipped separately.
  micro = config.optimizer.clip_unit == 'micro_batch'
  if name == 'phases.accumulate' and micro:
    return ANOTHER
  # The best is one of those that are evaluated.
  if name == 'eval.every' and config.finetuning.select == 'best':
    return ANOTHER
  section = f'{name.partition(".")[0]}.'
  # A field that is not in the table is from another version of bert_jax.
  return CLASSES.get(name) or CLASSES.get(section, ANOTHER)


def _as_json(config) -> dict:
  return json.loads(config_lib.to_json(config))
