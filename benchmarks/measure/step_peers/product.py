"""Multiplies matrices and does nothing else; see ../step_rate.py."""

import sys

import jax
import jax.numpy as jnp
import pipe


def main():
  size = int(sys.argv[2])  # rows and columns
  ones, multiply = jnp.ones((size, size)), jax.jit(jnp.matmul)

  def train(times):
    found = [multiply(ones, ones) for _ in range(times)]
    return float(found[-1][0, 0])

  device = jax.devices()[0].device_kind
  pipe.serve({'versions': f'jax {jax.__version__}', 'device': device}, train)


if __name__ == '__main__':
  main()
