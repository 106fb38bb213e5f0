"""The devices of a collective, in every form in which XLA writes them."""

import pytest

from bert_jax.preflight import hlo_text


@pytest.mark.parametrize(
  'groups, devices',
  [
    ('replica_groups={{0,4},{1,5},{2,6},{3,7}}', (0, 4)),
    ('replica_groups=[2,4]<=[8]', (0, 1, 2, 3)),
    ('replica_groups=[4,2]<=[2,4]T(1,0)', (0, 4)),
    ("replica_groups=mesh['data'=4,'model'=2] {'data'}", (0, 2, 4, 6)),
    ("replica_groups=mesh['data'=4,'model'=2] {'model'}", (0, 1)),
    ('source_target_pairs={{0,1},{1,2},{7,0}}', (7, 0)),
    ('replica_groups={}', None),
  ],
)
def test_devices_of_a_group_are_read(groups, devices):
  assert hlo_text.find_group(f', {groups}, to_apply=%sum') == devices
