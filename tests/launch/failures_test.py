"""Which messages of gcloud mean what."""

import pytest

from launch import failures, world

# A message per line; indented lines go on.
PASSING = """
There is no more capacity in the zone "us-east5-b"
code: ZONE_RESOURCE_POOL_EXHAUSTED
HTTPError 403: Quota 'TPUS_PER_PROJECT' exceeded. Limit: 32.0
Quota limit 'TPUV5sPodPerZone' has been exceeded. Limit: 32 in zone us-west4-a.
Quota 'CHIP_HOURS' exceeded. Limit: 0.5 globally
PERMISSION_DENIED: User does not have permission to submit requests for
  accelerator type v6e-8 in location us-east5-b
Machine type 'ct6e' does not exist in zone 'x'
Location us-east9-z was not found
the request has expired: valid_until has passed
Quota exceeded for quota metric 'Read requests' and limit 'Read requests per
  minute' of service 'tpu.googleapis.com'
RESOURCE_EXHAUSTED: 429 Too Many Requests
timed out after 900 s
Temporary failure in name resolution
ALREADY_EXISTS: resource 'r' already exists
HTTPError 503: billing-test: try again later
gs://b/run-403/logs: HTTPError 503: try again
an internal thing went wrong"""
STRUCTURAL = """
Quota 'TPUV4sPerRegionForTPUAPI' exhausted. Limit 0 in region us-central2
429: Quota limit 'TPUV5sPodPerProject' has been exceeded. Limit: 0.
PERMISSION_DENIED: Permission denied on locations
This API method requires billing to be enabled.
INVALID_ARGUMENT: unknown runtime
unrecognized arguments: --spots
gcloud: [Errno 2] No such file or directory: 'gcloud'"""
# Message -- advice.
ADVICE = """
Denied by org policy: constraints/compute.vmExternalIpAccess -- give --internal_ips
Constraint constraints/gcp.x violated for p1 -- an administrator's policy forbids
The user needs the iam.serviceAccountUser role -- give yourself roles/iam.serviceA
'iam.serviceAccounts.actAs' denied on x@y.z -- give yourself roles/iam.serviceAccou
service-7@cloud-tpu.iam.gserviceaccount.com is missing -- gcloud beta services ident
'projects/p1/global/networks/default' was not found -- give --network"""


@pytest.mark.parametrize('text', [PASSING, STRUCTURAL])
def test_message_is_classified(text):
  messages = text.replace('\n  ', ' ').splitlines()[1:]
  told = {message: failures.find_structural(message) for message in messages}
  structural = text == STRUCTURAL
  assert told == {message: message if structural else None for message in told}


def test_advice_that_gcloud_adds_does_not_hide_what_went_wrong():
  advice = [f'  gcloud {words}' for words in ('feedback', 'info', 'help', '--')]
  lines = ['ERROR: gcloud crashed (ConnectionError): x', 'Please run:', *advice]
  assert not failures.find_structural(world.shorten('\n'.join(lines)))


@pytest.mark.parametrize('line', ADVICE.splitlines()[1:])
def test_what_helps_is_said(line):
  text = failures.find_structural(line.partition(' -- ')[0])
  assert text.startswith(line)
