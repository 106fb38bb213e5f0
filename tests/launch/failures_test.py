"""Which messages of gcloud mean what."""

import pytest

from launch import failures


@pytest.mark.parametrize(
  'kind, message',
  [
    (failures.CAPACITY, 'There is no more capacity in the zone "us-east5-b"'),
    (failures.CAPACITY, 'code: ZONE_RESOURCE_POOL_EXHAUSTED'),
    (failures.CAPACITY, 'GCE_STOCKOUT'),
    (failures.CAPACITY, 'The zone does not have enough resources available'),
    (failures.CAPACITY, "Quota 'TPUS_PER_PROJECT' exceeded. Limit: 32.0"),
    (failures.STRUCTURAL, "Quota 'TPUS_PER_PROJECT' exceeded. Limit: 0.0"),
    (failures.STRUCTURAL, 'Quota limit "TPUV5s" exceeded. Limit: 0 in region'),
    (
      failures.CAPACITY,
      "RESOURCE_EXHAUSTED: Quota limit 'TPUV5sPodPerProjectPerZoneForTPUAPI' "
      'has been exceeded. Limit: 32 in zone us-west4-a.',
    ),
    (
      failures.CAPACITY,
      "Quota limit 'TPUV5sPodPerProjectPerZoneForTPUAPI' has been exceeded. "
      'Limit: 32 in zone us-west4-a.',
    ),
    (
      failures.CAPACITY,
      "Quota 'TPUV4sPodPerProjectPerRegionForTPUAPI' exhausted. Limit 4 in "
      'region us-central2',
    ),
    (
      failures.STRUCTURAL,
      "Quota 'TPUV4sPodPerProjectPerRegionForTPUAPI' exhausted. Limit 0 in "
      'region us-central2',
    ),
    (
      failures.STRUCTURAL,
      "429: Quota limit 'TPUV6EPerProjectPerZoneForTPUAPI' has been exceeded. "
      'Limit: 0.',
    ),
    (failures.CAPACITY, "Quota 'CHIP_HOURS' exceeded. Limit: 0.5 globally"),
    (
      failures.TRANSIENT,
      "Quota exceeded for quota metric 'Read requests' and limit 'Read "
      "requests per minute' of service 'tpu.googleapis.com'",
    ),
    (failures.TRANSIENT, 'rateLimitExceeded: Quota exceeded for queries'),
    (
      failures.CAPACITY,
      'PERMISSION_DENIED: User does not have permission to submit requests '
      'for accelerator type v6e-8 in location us-east5-b',
    ),
    (failures.STRUCTURAL, 'PERMISSION_DENIED: Permission denied on locations'),
    (failures.STRUCTURAL, 'This API method requires billing to be enabled.'),
    (failures.STRUCTURAL, 'INVALID_ARGUMENT: unknown runtime'),
    (failures.STRUCTURAL, 'unrecognized arguments: --spots'),
    (failures.STRUCTURAL, 'gcloud is not installed.'),
    (failures.TRANSIENT, 'HTTPError 503: Service Unavailable'),
    (failures.TRANSIENT, 'RESOURCE_EXHAUSTED: 429 Too Many Requests'),
    (failures.TRANSIENT, 'timed out after 900 s'),
    (failures.TRANSIENT, 'Connection reset by peer'),
    # What users name is no reason.
    (failures.TRANSIENT, 'HTTPError 503: billing-test: try again later'),
    (failures.TRANSIENT, 'gs://b/run-403/logs: HTTPError 503: try again'),
    (failures.UNKNOWN, "the VM 'projects/p/zones/z/instances/v503' is odd"),
    (failures.UNKNOWN, 'an internal thing went wrong'),
  ],
)
def test_message_is_classified(kind, message):
  assert failures.classify(message) == kind


@pytest.mark.parametrize(
  'message, missing, changed',
  [
    ('(gcloud.storage.cat) The following URLs matched no objects', True, False),
    ('gs://b/run-412/x not found: 404.', True, False),
    ('HTTPError 404: The specified bucket does not exist.', True, False),
    ('HTTPError 503: Service Unavailable', False, False),
    ('HTTPError 503: gs://b/run-404/x was not found in time', False, False),
    ('HTTPError 412: Precondition Failed', False, True),
    ('At least one of the pre-conditions you specified did', False, True),
    ('HTTPError 403: no access to gs://precondition-412/x', False, False),
  ],
)
def test_missing_and_changed_objects_are_told_from_other_errors(
  message, missing, changed
):
  assert failures.is_missing(message) == missing
  assert failures.is_changed(message) == changed
