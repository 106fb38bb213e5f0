"""The smallest run that uses every part, for proofs that start it often.

With compiled programs in the cache it takes about a second.
"""

from bert_jax import config

LENGTH, STEPS, SAVE_EVERY = 16, 8, 2


def get_config(arguments: str = ''):
  c = config.pretraining('tiny')
  phase = {'seq_length': LENGTH, 'steps': STEPS, 'batch_size': 8}
  phase |= {'accumulate': 1, 'max_predictions': 3}
  c.phases.update({name: (value,) for name, value in phase.items()})
  c = config.apply_arguments(
    c,
    f'smoke,steps={STEPS},num_layers=1,hidden_size=8,mlp_size=8,'
    'vocab_size=120,layout=sentences,workers=0,shards=4,log.every=1,'
    f'eval.every=4,checkpoint.every={SAVE_EVERY},warmup_steps=2',
  )
  return config.apply_arguments(c, arguments)
