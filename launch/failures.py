"""Tells from a message whether trying again, or elsewhere, can help."""

import re

# A zone is full for now: another may not be.
CAPACITY = 'capacity'
# The project or the request is wrong: nothing will help but a change.
STRUCTURAL = 'structural'
# The service is busy or out of reach: the same may work in a moment.
TRANSIENT = 'transient'
UNKNOWN = 'unknown'

# The first pattern that is found decides, so the order matters: a quota of zero
# is also a quota, and so is a number of requests per minute; a refusal may
# contain a number such as 503.
_KINDS = (
  (TRANSIENT, r'per (minute|second)|ratelimitexceeded'),
  (STRUCTURAL, r'limit:? 0(\.0+)?\b(?!\.\d)'),
  (CAPACITY, r'no more capacity|stockout|resource_pool_exhausted'),
  (CAPACITY, r'(not |in)(have |)(enough|sufficient) (capacity|resources)'),
  (CAPACITY, r'quota exceeded|quota_exceeded'),
  (CAPACITY, r'quota (limit )?\S+ (has been )?(exceeded|exhausted)'),
  # One zone does not offer these chips to this project; another may.
  (CAPACITY, r'permission to submit requests for accelerator type'),
  (STRUCTURAL, r'billing|permission.denied|forbidden|\b403\b|unauthenticated'),
  (STRUCTURAL, r'has not been used in project|service_disabled|not enabled'),
  (STRUCTURAL, r'invalid.argument|invalid value|bad request|\b400\b'),
  (STRUCTURAL, r'unrecognized arguments|is not installed|was not found'),
  (STRUCTURAL, r'credential|gcloud auth login|reauthent'),
  (TRANSIENT, r'\b(429|500|502|503|504)\b|unavailable|too many requests'),
  (TRANSIENT, r'timed out|timeout|connection|unreachable|backend error'),
  (TRANSIENT, r'rate.?limit|resource_exhausted|deadline.exceeded|internal err'),
)


# Paths and what has a hyphen: names of runs, buckets and zones, which may
# contain any of the words and numbers above.
_NAME = re.compile(r'[\w.:]*[/-][\w.:/-]*')


def classify(message: str) -> str:
  """Returns one of the kinds above."""
  text = _NAME.sub('NAME', message).lower()
  for kind, pattern in _KINDS:
    if re.search(pattern, text):
      return kind
  return UNKNOWN


def is_transient(message: str) -> bool:
  """Returns whether the same command may succeed in a moment."""
  return classify(message) == TRANSIENT


def is_missing(message: str) -> bool:
  """Returns whether a message of `gcloud storage` says that nothing is there.

  Args:
    message: standard error of the command, without its arguments.
  """
  found = r'matched no objects|httperror 404|not found: 404'
  return bool(re.search(found, message.lower()))


def is_changed(message: str) -> bool:
  """Returns whether `gcloud storage` says that --if-generation-match failed."""
  found = r'httperror 412|pre-?conditions? (you specified|failed)'
  return bool(re.search(found, message.lower()))


def shorten(message: str) -> str:
  """Returns the telling end of a command's errors as one line."""
  lines = [
    line
    for line in message.strip().splitlines()
    if line.strip() and not line.startswith('WARNING')
  ]
  return ' '.join(' '.join(lines[-4:]).split())[:600] or 'no message'
