"""The rate of dropout in 256ths, as random bytes decide it."""


def count_kept(rate: float) -> int:
  """Returns the probability that a value is kept, in 256ths."""
  return round((1 - rate) * 256)
