"""Tells from a message of a request for TPUs whether to try again, or elsewhere.

All other answers of Google have codes.
"""

import re

# A zone is full for now, or does not offer the chips: another may.
CAPACITY = 'capacity'
# The project or the request is wrong: nothing will help but a change.
STRUCTURAL = 'structural'
# All others: the same may work in a moment, and asking costs nothing.
PASSING = 'passing'

# {pattern: what helps}. These name what is wrong, so the whole message counts.
_POLICY = "an administrator's policy forbids it: ask for an exception"
_USER = "give yourself roles/iam.serviceAccountUser on the hosts' account"
_AGENT = 'gcloud beta services identity create --service=tpu.googleapis.com'
_WRONG = {
  r'vmexternalipaccess': 'give --internal_ips, with Cloud NAT in the network',
  r'constraints/|org(anization)?.?policy|violates constraint': _POLICY,
  r'iam\.serviceaccounts\.actas|serviceaccountuser': _USER,
  r'service-\d+@|service agent': _AGENT,
  r'networks?/\S+ (was )?(not found|does not exist)': 'give --network',
}
# Searched for without names. The first that is found decides, so the order
# matters: a quota of zero is also a quota, and so is a number of requests per
# minute; a refusal may contain a number such as 503.
_KINDS = (
  (PASSING, r'per (minute|second)|ratelimitexceeded|already exists'),
  (STRUCTURAL, r'limit:? 0(\.0+)?\b(?!\.\d)'),
  (CAPACITY, r'no more capacity|stockout|resource_pool_exhausted'),
  (CAPACITY, r'(not |in)(have |)(enough|sufficient) (capacity|resources)'),
  (CAPACITY, r'quota[ _](limit )?(\S+ )?(has been )?(exceeded|exhausted)'),
  (CAPACITY, r'permission to submit requests for accelerator type'),
  (CAPACITY, r'(machine|accelerator|zone|location).{0,80}not (found|exist)'),
  (CAPACITY, r'valid.?until|queueing policy|has expired'),
  (STRUCTURAL, r'billing|permission.denied|forbidden|\b403\b|unauthenticated'),
  (STRUCTURAL, r'has not been used in project|service_disabled|not enabled'),
  (STRUCTURAL, r'credential|reauthent|active account'),
  (STRUCTURAL, r'invalid.argument|invalid value|bad request|\b400\b'),
  (STRUCTURAL, r'unrecognized arguments|is not installed|was not found'),
)
# Paths and what has a hyphen: names of runs, buckets and zones, which may
# contain any of the words and numbers above.
_NAME = re.compile(r'[\w.:]*[/-][\w.:/-]*')


def judge(message: str) -> tuple[str, str]:
  """Returns one of the kinds above, and the message with what helps."""
  for pattern, advice in _WRONG.items():
    if re.search(pattern, message.lower()):
      return STRUCTURAL, f'{message} -- {advice}'
  text = _NAME.sub('NAME', message).lower()
  kinds = [kind for kind, pattern in _KINDS if re.search(pattern, text)]
  return (*kinds, PASSING)[0], message
