"""What benchmarks/tpu/kernel_shapes.py tries."""

import kernel_shapes
import kernels


def test_each_shape_is_tried_as_what_takes_the_most_memory():
  assert all(
    kernel_shapes.variants(n)[0] == (16, 'packed', 'threefry')
    for n in range(56)
  )


def test_the_other_variant_takes_every_combination_in_turn():
  found = {kernel_shapes.variants(n)[1] for n in range(45)}
  assert found == {
    (rows, mask, generator)
    for rows in kernel_shapes.ROWS
    for mask in kernel_shapes.MASKS
    for generator in kernels.GENERATORS
  }
