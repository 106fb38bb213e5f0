"""What fields mean together: decays of the learning rate, compiler options."""

from ml_collections import config_dict

from bert_jax import errors


def list_decays(phases: config_dict.ConfigDict) -> list[tuple[float, int, int]]:
  """Returns the peak, warm-up and updates of each decay of the learning rate.

  Phases with a rate of 0 continue the decay of the one before.
  """
  decays = []
  for peak, warmup, steps in zip(
    phases.learning_rates, phases.warmups, phases.steps, strict=True
  ):
    if decays and not peak:
      *known, before = decays[-1]
      decays[-1] = (*known, before + steps)
    else:
      decays.append((peak, warmup, steps))
  return decays


def get_xla_options(text: str) -> dict[str, str | bool]:
  """Returns the compiler options of `compute.xla_options`; none of `auto`."""
  options = {}
  for item in text.split() if text != 'auto' else ():
    name, equals, value = item.partition('=')
    if not equals:
      raise errors.UserError(
        f'compute.xla_options has {item!r}; give NAME=VALUE NAME=VALUE.'
      )
    # XLA for GPUs takes no words for these.
    options[name.lstrip('-')] = {'true': True, 'false': False}.get(value, value)
  return options
