"""Peak speeds of devices, for model FLOP utilisation."""

# bf16 FLOP/s of one jax device, from the makers' data sheets. A TPU v2 or v3
# chip and a TPU7x chip show as two devices.
PEAK_FLOPS = {
  'TPU v2': 45e12 / 2,
  'TPU v3': 123e12 / 2,
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,
  'TPU v5': 459e12,
  'TPU v6 lite': 918e12,
  'TPU7x': 2307e12 / 2,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H200': 989e12,
}
