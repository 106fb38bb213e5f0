"""Which messages of gcloud mean what."""

import pytest

from launch import failures

TPUV5 = "Quota limit 'TPUV5sPodPerProjectPerZoneForTPUAPI' has been exceeded. "
KINDS = {
  failures.CAPACITY: (
    'There is no more capacity in the zone "us-east5-b"',
    'code: ZONE_RESOURCE_POOL_EXHAUSTED',
    'GCE_STOCKOUT',
    'The zone does not have enough resources available',
    "Quota 'TPUS_PER_PROJECT' exceeded. Limit: 32.0",
    f'RESOURCE_EXHAUSTED: {TPUV5}Limit: 32 in zone us-west4-a.',
    f'{TPUV5}Limit: 32 in zone us-west4-a.',
    "Quota 'TPUV4sPerRegionForTPUAPI' exhausted. Limit 4 in region us-central2",
    "Quota 'CHIP_HOURS' exceeded. Limit: 0.5 globally",
    'PERMISSION_DENIED: User does not have permission to submit requests for '
    'accelerator type v6e-8 in location us-east5-b',
    "Machine type 'ct6e' does not exist in zone 'x'",
    'accelerator type v6e-8 was not found in zone us-a1-z',
    'Location us-east9-z was not found',
    'the request has expired: valid_until has passed',
  ),
  failures.STRUCTURAL: (
    "Quota 'TPUS_PER_PROJECT' exceeded. Limit: 0.0",
    'Quota limit "TPUV5s" exceeded. Limit: 0 in region',
    "Quota 'TPUV4sPerRegionForTPUAPI' exhausted. Limit 0 in region us-central2",
    f'429: {TPUV5}Limit: 0.',
    'PERMISSION_DENIED: Permission denied on locations',
    'This API method requires billing to be enabled.',
    'INVALID_ARGUMENT: unknown runtime',
    'unrecognized arguments: --spots',
    'gcloud is not installed.',
  ),
  failures.TRANSIENT: (
    "Quota exceeded for quota metric 'Read requests' and limit 'Read requests "
    "per minute' of service 'tpu.googleapis.com'",
    'rateLimitExceeded: Quota exceeded for queries',
    'HTTPError 503: Service Unavailable',
    'RESOURCE_EXHAUSTED: 429 Too Many Requests',
    'timed out after 900 s',
    'Connection reset by peer',
    'ServerNotFoundError: Unable to find the server at x',
    'Temporary failure in name resolution',
    "ALREADY_EXISTS: resource 'r' already exists",
    # What users name is no reason.
    'HTTPError 503: billing-test: try again later',
    'gs://b/run-403/logs: HTTPError 503: try again',
  ),
  failures.UNKNOWN: (
    "the VM 'projects/p/zones/z/instances/v503' is odd",
    'an internal thing went wrong',
  ),
}
ADVICE = {
  'Operation denied by org policy: constraints/compute.vmExternalIpAccess': (
    'give --internal_ips'
  ),
  'Constraint constraints/gcp.resourceLocations violated for projects/p1': (
    'ask for an exception'
  ),
  "The user does not have access to service account 'x@y.z'. Ask a project "
  'owner for the iam.serviceAccountUser role': 'roles/iam.serviceAccountUser',
  "Permission 'iam.serviceAccounts.actAs' denied on service account x@y.z": (
    'roles/iam.serviceAccountUser'
  ),
  'service-7@cloud-tpu.iam.gserviceaccount.com does not exist': (
    'services identity create'
  ),
  "The resource 'projects/p1/global/networks/default' was not found": (
    'give --network'
  ),
}


@pytest.mark.parametrize('kind', KINDS)
def test_message_is_classified(kind):
  found = {message: failures.judge(message) for message in KINDS[kind]}
  assert found == {message: (kind, message) for message in found}


@pytest.mark.parametrize('message', ADVICE)
def test_what_helps_is_said(message):
  kind, text = failures.judge(message)
  assert kind == failures.STRUCTURAL
  assert text.startswith(f'{message} -- ') and ADVICE[message] in text
