"""Tests of what must be the same on all hosts."""

from bert_jax.parallel import agreement


def test_differences_name_the_host_and_the_field():
  facts = [
    {'seed': 0, 'model.py': 'aa'},
    {'seed': 0, 'model.py': 'aa'},
    {'seed': 1, 'model.py': 'bb', 'new.py': 'cc'},
  ]
  assert agreement.find_differences(facts, most=2) == [
    "host 2 has model.py='bb', host 0 has 'aa'",
    "host 2 has new.py='cc', host 0 has None",
    '1 more',
  ]


def test_code_names_every_module():
  found = agreement.hash_code()
  assert {'bert_jax', 'jax', 'train/loop.py', 'pretraining/batches.py'} <= set(
    found
  )
