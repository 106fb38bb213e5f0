"""Which fields of a config a run may change once its training has begun."""

import json

from ml_collections import config_dict

from bert_jax import config as config_lib

# What a new value does to the rest of the run: nothing; other rounding or
# other random numbers of the same distribution; another experiment.
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
  # Where no record is corrupt; else a run that does not skip them has none.
  'data.skip_corrupt': SAME_RESULT,
  # It is as the prepared data have it, which the config is checked against.
  'data.strip_accents': SAME_RESULT,
  # The data in it is compared by its hash.
  'data.dir': SAME_RESULT,
  'objective.': ANOTHER,
  'phases.seq_length': ANOTHER,
  'phases.steps': ANOTHER,
  'phases.batch_size': ANOTHER,
  # Sums are divided once, whatever the micro-batches; but see `_classify`.
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
    old: the saved one, as JSON; fields that are younger have their default.
    config: the experiment.

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
  # There each micro-batch is clipped by itself.
  micro = config.optimizer.clip_unit == 'micro_batch'
  if name == 'phases.accumulate' and micro:
    return ANOTHER
  section = f'{name.partition(".")[0]}.'
  # A field that the table lacks is of another version of bert_jax.
  return CLASSES.get(name) or CLASSES.get(section, ANOTHER)


def _as_json(config) -> dict:
  return json.loads(config_lib.to_json(config))
