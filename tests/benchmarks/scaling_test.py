"""What benchmarks/tpu/scaling.py makes of estimates and programs."""

import aot_compile
import scaling

from bert_jax.hardware import topology as topology_lib
from bert_jax.preflight import estimate


def test_efficiency_is_relative_to_the_first_slice():
  first = estimate.Step(0.010, 0, 0, {'collectives': 0.002})
  step = estimate.Step(0.0125, 0, 0, {'collectives': 0.0025})
  line = scaling.row(first, step, 16)
  assert line.split() == ['16', '10.00', '12.50', '80.0%', '80.0%']


def test_what_no_dimension_of_is_divisible_by_the_chips_is_kept_whole():
  topology = topology_lib.parse('v5e:16x16')
  config = aot_compile.get_config(scaling.settings_of(topology))
  whole = scaling.kept_whole(config, topology)
  assert whole['encoder/layer_0/attention/qkv/bias'] == 3 * 12 * 64 * 4
  assert whole['nsp/bias'] == 2 * 4
  assert 'encoder/layer_0/mlp_in/kernel' not in whole


def test_collectives_are_listed_by_size_with_those_that_a_device_waits_for():
  text = """
%all-reduce-scatter.1 (a: f32[64]) -> f32[16] {
  %a = f32[64]{0} parameter(0)
  %all-reduce.1 = f32[64]{0} all-reduce(%a), to_apply=%add
}

%beside.1 (b: f32[2]) -> f32[8] {
  %b = f32[2]{0} parameter(0)
  %s = f32[] custom-call(), custom_call_target="AsyncCollectiveStart"
  %all-gather.1 = f32[8]{0} all-gather(%b), frontend_attributes={chain_id="1"}
}

%beside.2 (b: f32[2]) -> f32[8] {
  %b = f32[2]{0} parameter(0)
  %all-gather.2 = f32[8]{0} all-gather(%b), frontend_attributes={chain_id="1"}
}

ENTRY %main (q: f32[24]) -> f32[24] {
  %q = f32[24]{0} parameter(0)
  %all-reduce.2 = f32[24]{0} all-reduce(%q), to_apply=%add
  %c = f32[24]{0} collective-permute-start(%q), channel_id=1
}
"""
  assert scaling.collectives(text) == [
    (256, True, 'reduce-scatter f32[64]{0}'),
    (96, True, 'all-reduce f32[24]{0}'),
    (96, False, 'collective-permute f32[24]{0}'),
    (32, False, 'all-gather f32[8]{0}'),
  ]
