"""AdamW with warm-up and linear decay (appendix A.2)."""

import re

import optax

from bert_jax import names

# As in Google's code: everything else decays, word embeddings included.
NO_DECAY = re.compile(r'(^|/)\w*norm/|(^|/)bias$')


def schedule(config, steps: int) -> optax.Schedule:
  """Returns the learning rate of each update.

  0 at update 0, linear to the peak at `warmup_steps`, linear to exactly 0 at
  `steps`, and 0 from there on.
  """
  peak, warmup = config.learning_rate, config.warmup_steps
  decay = optax.linear_schedule(peak, 0.0, steps - warmup)
  if not warmup:
    return decay
  rise = optax.linear_schedule(0.0, peak, warmup)
  return optax.join_schedules([rise, decay], [warmup])


def decay_mask(params):
  """Returns a tree of booleans: True where weight decay applies."""
  return names.map_named(lambda name, _: not NO_DECAY.search(name), params)


def make(config) -> optax.GradientTransformation:
  """Returns optax's AdamW up to, and without, the learning rate.

  The training step multiplies by `-schedule(step)` itself: a skipped update
  (non-finite gradient) must not advance Adam's own count, yet the schedule
  has to reach 0 at the planned step.
  """
  return optax.chain(
    optax.clip_by_global_norm(config.clip_norm),
    optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.epsilon),
    optax.add_decayed_weights(config.weight_decay, mask=decay_mask),
  )
