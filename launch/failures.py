"""Tells from a refusal of TPUs whether nothing will help but a change.

All others may pass, also those of which nobody has heard: a zone is full, or the
service is busy. All other answers of Google have codes.
"""

import re

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
# {pattern: whether it is one of these}, searched for without names. The first that
# is found decides, so the order matters: a number of requests per minute is also
# a quota, and so is a quota of zero; a refusal may contain a number such as 503.
_KINDS = {
  r'per (minute|second)|ratelimitexceeded|already exists': False,
  r'limit:? 0(\.0+)?\b(?!\.\d)': True,
  r'no more capacity|stockout|resource_pool_exhausted|valid.?until': False,
  r'(not |in)(have |)(enough|sufficient) (capacity|resources)': False,
  r'quota[ _](limit )?(\S+ )?(has been )?(exceeded|exhausted)': False,
  r'permission to submit requests for accelerator type': False,
  r'(machine|accelerator|zone|location).{0,80}not (found|exist)': False,
  r'billing|permission.denied|forbidden|\b403\b|unauthenticated': True,
  r'has not been used in project|service_disabled|not enabled': True,
  r'credential|reauthent|active account|no such file|was not found': True,
  r'invalid.argument|invalid value|bad request|\b400\b|unrecognized arg': True,
}
# Paths and what has a hyphen: names of runs, buckets and zones, which may
# contain any of the words and numbers above.
_NAME = re.compile(r'[\w.:]*[/-][\w.:/-]*')


def find_structural(message: str) -> str | None:
  """Returns the message with what helps, if the same request cannot succeed."""
  for pattern, advice in _WRONG.items():
    if re.search(pattern, message.lower()):
      return f'{message} -- {advice}'
  text = _NAME.sub('NAME', message).lower()
  kinds = [kind for pattern, kind in _KINDS.items() if re.search(pattern, text)]
  return message if kinds[:1] == [True] else None
