"""ModernBERT (arXiv 2412.13663) and the sizes of Ettin (arXiv 2507.11412).

python -m bert_jax.main --config=configs/modern.py:base --workdir=DIR \\
  --config.data.input='text/*.txt'

size    layers, hidden, MLP, heads  parameters   peak, later  decay  of
base    22   768  1152  12         149,655,232  8e-4, 3e-4   1e-5   ModernBERT
large   28  1024  2624  16         395,881,664  5e-4, 5e-5   1e-5   ModernBERT
17m      7   256   384   4          16,913,600  3e-3, 1.5e-3 3e-4   Ettin
32m     10   384   576   6          32,081,344  3e-3, 1.5e-3 3e-4   Ettin
68m     19   512   768   8          68,457,664  3e-3, 1.5e-3 3e-4   Ettin
150m    22   768  1152  12         149,655,232  8e-4, 4e-4   1e-5   Ettin
400m    28  1024  2624  16         395,881,664  5e-4, 2.5e-4 1e-5   Ettin

Two trillion tokens: 1.7 at length 1,024 and a constant rate, in batches that grow from
768 to 4,608 rows; 0.25 at length 8,192 and a lower rate, with longer wavelengths in the
layers that see all; 0.05 in which that falls. `steps=N` shortens all in proportion.
docs/modern.md has what differs from what was published.
"""

from bert_jax import config, errors

# {size: layers, hidden, MLP, heads; rate, later rate, weight decay; updates of the
# warm-up, 1e9 tokens of growing batches; masked share of the last decay}
_SIZES = {
  'base': (22, 768, 1152, 12, 8e-4, 3e-4, 1e-5, 3814, 50, 0.3),
  'large': (28, 1024, 2624, 16, 5e-4, 5e-5, 1e-5, 1694, 10, 0.3),
  '17m': (7, 256, 384, 4, 3e-3, 1.5e-3, 3e-4, 5086, 125, 0.15),
  '32m': (10, 384, 576, 6, 3e-3, 1.5e-3, 3e-4, 5086, 100, 0.15),
  '68m': (19, 512, 768, 8, 3e-3, 1.5e-3, 3e-4, 3814, 75, 0.15),
  '150m': (22, 768, 1152, 12, 8e-4, 4e-4, 1e-5, 3814, 50, 0.15),
  '400m': (28, 1024, 2624, 16, 5e-4, 2.5e-4, 1e-5, 1694, 10, 0.15),
}
_ROWS = 768  # at first; five times more are added in equal numbers of updates


def get_config(arguments: str = 'base'):
  size, _, rest = arguments.partition(',')
  if size not in _SIZES:
    raise errors.UserError(
      f'{size!r} is not one of {", ".join(_SIZES)}; give it first: '
      'configs/modern.py:17m,steps=20000'
    )
  *shape, rate, later, decay, warmup, growing, last = _SIZES[size]
  c = config.apply_arguments(config.pretraining('base'), 'body=modern')
  names = 'num_layers', 'hidden_size', 'mlp_size', 'num_heads'
  c.model.update(dict(zip(names, shape, strict=True)))
  c.model.update(dtype='bfloat16', max_positions=8192)
  c.rng = 'rbg'  # the chip's own generator; see docs/speed.md
  c.data.update(vocab_size=50_368, lowercase=False, rows='full_sentences')
  batches = [_ROWS * n for n in (1, 2, 3, 4, 5, 6)]
  grow = int(growing * 1e9 / 1024 / sum(batches[:-1]))
  steps = [grow] * 5 + [int((1700 - growing) * 1e9 / 1024 / batches[-1])]
  steps += [int(tokens * 1e9 / 8192 / 576) for tokens in (250, 50)]
  c.phases.update(
    steps=tuple(steps),
    seq_length=(1024,) * 6 + (8192,) * 2,
    batch_size=(*batches, 576, 576),
    accumulate=(1, 2, 3, 4, 5, 6, 6, 6),  # for 8 chips of 80 GB
    mask_rates=(0.3,) * 7 + (last,),
    max_predictions=(308,) * 6 + (2458, int(8192 * last) + 1),
    rope_thetas=(1e4,) * 6 + (1.6e5,) * 2,
    learning_rates=(rate, *[0.0] * 5, later, 0.0),
    warmups=(warmup, *[0] * 7),
  )
  c.optimizer.update(
    algorithm='stable_adamw',
    b2=0.98,
    clip_norm=1e30,  # the optimizer limits updates instead
    weight_decay=round(decay / rate, 6),  # theirs is not multiplied by the rate
    schedule='wsd',
    decay_steps=steps[-1],
  )
  return config.apply_arguments(c, rest)
