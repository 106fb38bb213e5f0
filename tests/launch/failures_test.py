"""Which messages of gcloud mean what."""

import pytest

from launch import failures, world

# A message per line; indented lines go on.
KINDS = {
  failures.CAPACITY: """
There is no more capacity in the zone "us-east5-b"
code: ZONE_RESOURCE_POOL_EXHAUSTED
GCE_STOCKOUT
The zone does not have enough resources available
Quota 'TPUS_PER_PROJECT' exceeded. Limit: 32.0
Quota limit 'TPUV5sPodPerZone' has been exceeded. Limit: 32 in zone us-west4-a.
Quota 'TPUV4sPerRegionForTPUAPI' exhausted. Limit 4 in region us-central2
Quota 'CHIP_HOURS' exceeded. Limit: 0.5 globally
code: QUOTA_EXCEEDED
PERMISSION_DENIED: User does not have permission to submit requests for
  accelerator type v6e-8 in location us-east5-b
Machine type 'ct6e' does not exist in zone 'x'
Location us-east9-z was not found
the request has expired: valid_until has passed""",
  failures.STRUCTURAL: """
Quota 'TPUV4sPerRegionForTPUAPI' exhausted. Limit 0 in region us-central2
429: Quota limit 'TPUV5sPodPerProject' has been exceeded. Limit: 0.
PERMISSION_DENIED: Permission denied on locations
This API method requires billing to be enabled.
INVALID_ARGUMENT: unknown runtime
unrecognized arguments: --spots
gcloud is not installed.""",
  failures.PASSING: """
Quota exceeded for quota metric 'Read requests' and limit 'Read requests per
  minute' of service 'tpu.googleapis.com'
rateLimitExceeded: Quota exceeded for queries
RESOURCE_EXHAUSTED: 429 Too Many Requests
timed out after 900 s
Connection reset by peer
ServerNotFoundError: Unable to find the server at x
Temporary failure in name resolution
ALREADY_EXISTS: resource 'r' already exists
HTTPError 503: billing-test: try again later
gs://b/run-403/logs: HTTPError 503: try again
the VM 'projects/p/zones/z/instances/v503' is odd
an internal thing went wrong
[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred
the database is locked""",
}
# Message -- advice.
ADVICE = """
Denied by org policy: constraints/compute.vmExternalIpAccess -- give --internal_ips
Constraint constraints/gcp.x violated for p1 -- an administrator's policy forbids
The user needs the iam.serviceAccountUser role -- give yourself roles/iam.serviceA
'iam.serviceAccounts.actAs' denied on x@y.z -- give yourself roles/iam.serviceAccou
service-7@cloud-tpu.iam.gserviceaccount.com is missing -- gcloud beta services ident
'projects/p1/global/networks/default' was not found -- give --network"""


@pytest.mark.parametrize('kind', KINDS)
def test_message_is_classified(kind):
  messages = KINDS[kind].replace('\n  ', ' ').splitlines()[1:]
  found = {message: failures.judge(message) for message in messages}
  assert found == {message: (kind, message) for message in messages}


def test_advice_that_gcloud_adds_does_not_hide_what_went_wrong():
  advice = [f'  gcloud {words}' for words in ('feedback', 'info', 'help', '--')]
  lines = ['ERROR: gcloud crashed (ConnectionError): x', 'Please run:', *advice]
  kind, _ = failures.judge(world.shorten('\n'.join(lines)))
  assert kind == failures.PASSING


@pytest.mark.parametrize('line', ADVICE.splitlines()[1:])
def test_what_helps_is_said(line):
  kind, text = failures.judge(line.partition(' -- ')[0])
  assert kind == failures.STRUCTURAL and text.startswith(line)
