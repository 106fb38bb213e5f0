"""Google's BERT pre-training, forward, backward and optimizer, in NumPy.

Written from the description of google-research/bert (modeling.py,
optimization.py, run_pretraining.py) as an independent reference for bert_jax:
they share nothing, neither parameter names nor the way gradients are computed.
Everything is float64, without dropout, for sizes that a test needs.

Weights are {Google's variable name: array}, dense kernels [in, out].
"""

import collections
import re

import numpy as np

NO_DECAY = ('LayerNorm', 'layer_norm', 'bias')


def train(weights, batches, *, heads, cores, peak, warmup, steps):
  """Trains, and returns the losses before each update.

  Args:
    weights: changed in place.
    batches: the first `steps` are used; features have BERT's names.
    heads: number of attention heads.
    cores: row r goes to core r % cores. Each takes the means over its own rows
      and clips its own gradient; these are summed.
    peak, warmup, steps: of the schedule.

  Returns:
    [steps, 2]: MLM and NSP loss, means over the whole batch.
  """
  m = {name: np.zeros_like(x) for name, x in weights.items()}
  v = {name: np.zeros_like(x) for name, x in weights.items()}
  losses = []
  for step, batch in zip(range(steps), batches, strict=False):
    total = collections.Counter()
    grads = {name: np.zeros_like(x) for name, x in weights.items()}
    for core in range(cores):
      rows = {name: x[core::cores] for name, x in batch.items()}
      sums, of_core = gradient(weights, rows, heads)
      total.update(sums)
      for name, grad in clipped(of_core, 1.0).items():
        grads[name] += grad
    update(weights, grads, m, v, learning_rate(step, peak, warmup, steps))
    losses.append(
      (total['mlm'] / total['predictions'], total['nsp'] / total['pairs'])
    )
  return np.array(losses)


def learning_rate(step, peak, warmup, steps):
  """Decays linearly from step 0; the warm-up overwrites the beginning."""
  if step < warmup:
    return peak * step / warmup
  return peak * (1 - min(step, steps) / steps)


def clipped(grads, limit):
  """Scales all gradients so that their common norm is at most the limit."""
  norm = np.sqrt(sum((grad**2).sum() for grad in grads.values()))
  return {name: g * limit / max(norm, limit) for name, g in grads.items()}


def update(weights, grads, m, v, rate):
  """Adam without bias correction, with decoupled weight decay. In place."""
  for name, grad in grads.items():
    m[name] = 0.9 * m[name] + 0.1 * grad
    v[name] = 0.999 * v[name] + 0.001 * grad**2
    change = m[name] / (np.sqrt(v[name]) + 1e-6)
    if not any(re.search(pattern, name) for pattern in NO_DECAY):
      change += 0.01 * weights[name]
    weights[name] -= rate * change


def gradient(weights, batch, heads):
  """Returns sums and counts of the losses, and the gradient of their means.

  The loss is sum(w nll) / (sum(w) + 1e-5) of the masked tokens plus the mean
  of next sentence prediction.
  """
  grads = collections.defaultdict(float)
  x, back = encoder(grads, weights, batch, heads)  # [B, S, D]

  rows = np.arange(len(x))[:, None]
  at = batch['masked_lm_positions']
  y, back_transform = dense(
    grads, weights, 'cls/predictions/transform/dense', x[rows, at]
  )
  y, back_gelu = gelu(y)
  y, back_norm = layer_norm(
    grads, weights, 'cls/predictions/transform/LayerNorm', y
  )
  table = weights['bert/embeddings/word_embeddings']
  logits = y @ table.T + weights['cls/predictions/output_bias']  # [B, P, V]
  w = batch['masked_lm_weights']
  mlm, d = cross_entropy(logits, batch['masked_lm_ids'], w)
  d = d / (w.sum() + 1e-5)

  pooled, back_pooler = dense(grads, weights, 'bert/pooler/dense', x[:, 0])
  pooled = np.tanh(pooled)
  nsp_kernel = weights['cls/seq_relationship/output_weights']  # [2, D]
  logits = pooled @ nsp_kernel.T + weights['cls/seq_relationship/output_bias']
  ones = np.ones(len(x))
  nsp, d_nsp = cross_entropy(logits, batch['next_sentence_labels'], ones)
  d_nsp = d_nsp / len(x)

  grads['cls/predictions/output_bias'] += d.sum((0, 1))
  grads['bert/embeddings/word_embeddings'] += np.einsum('bpv,bpd->vd', d, y)
  dx = np.zeros_like(x)
  np.add.at(dx, (rows, at), back_transform(back_gelu(back_norm(d @ table))))
  grads['cls/seq_relationship/output_weights'] += d_nsp.T @ pooled
  grads['cls/seq_relationship/output_bias'] += d_nsp.sum(0)
  dx[:, 0] += back_pooler(d_nsp @ nsp_kernel * (1 - pooled**2))
  back(dx)
  sums = {'mlm': mlm, 'predictions': w.sum(), 'nsp': nsp, 'pairs': len(x)}
  return sums, dict(grads)


def encoder(grads, weights, batch, heads):
  """Embeddings and layers: [B, S, D], and back(dx), which fills `grads`."""
  ids, types = batch['input_ids'], batch['segment_ids']
  emb = 'bert/embeddings/'
  length = ids.shape[1]
  x = (
    weights[emb + 'word_embeddings'][ids]
    + weights[emb + 'token_type_embeddings'][types]
    + weights[emb + 'position_embeddings'][:length]
  )
  x, back_norm = layer_norm(grads, weights, emb + 'LayerNorm', x)
  backs = []
  layer = 'bert/encoder/layer_{}/'
  while layer.format(len(backs)) + 'output/dense/bias' in weights:
    name = layer.format(len(backs))
    x, back_layer = block(grads, weights, name, x, batch['input_mask'], heads)
    backs.append(back_layer)

  def back(dx):
    for back_layer in reversed(backs):
      dx = back_layer(dx)
    dx = back_norm(dx)
    for table, rows in (('word', ids), ('token_type', types)):
      d = np.zeros_like(weights[f'{emb}{table}_embeddings'])
      np.add.at(d, rows, dx)
      grads[f'{emb}{table}_embeddings'] += d
    d = np.zeros_like(weights[emb + 'position_embeddings'])
    d[:length] = dx.sum(0)
    grads[emb + 'position_embeddings'] += d

  return x, back


def block(grads, weights, name, x, mask, heads):
  """One layer: attention and MLP, each added and normalised."""
  a, back_a = attention(grads, weights, name + 'attention/', x, mask, heads)
  x, back_norm_a = layer_norm(
    grads, weights, name + 'attention/output/LayerNorm', x + a
  )
  y, back_in = dense(grads, weights, name + 'intermediate/dense', x)
  y, back_gelu = gelu(y)
  y, back_out = dense(grads, weights, name + 'output/dense', y)
  y, back_norm_y = layer_norm(grads, weights, name + 'output/LayerNorm', x + y)

  def back(dy):
    dy = back_norm_y(dy)
    dx = back_norm_a(dy + back_in(back_gelu(back_out(dy))))
    return dx + back_a(dx)

  return y, back


def attention(grads, weights, name, x, mask, heads):
  """softmax(Q K / sqrt(K) - 10000 (1 - mask)) V, then the output product."""
  size = x.shape[-1] // heads

  def split(y):  # [B, S, D] to [B, H, S, K]
    return y.reshape(*y.shape[:2], heads, size).swapaxes(1, 2)

  def join(y):
    return y.swapaxes(1, 2).reshape(x.shape)

  (q, back_q), (k, back_k), (v, back_v) = (
    dense(grads, weights, f'{name}self/{part}', x)
    for part in ('query', 'key', 'value')
  )
  q, k, v = split(q), split(k), split(v)
  scores = q @ k.swapaxes(2, 3) / np.sqrt(size)
  scores = scores - 10_000.0 * (1 - mask[:, None, None, :])
  p = softmax(scores)
  out, back_out = dense(grads, weights, name + 'output/dense', join(p @ v))

  def back(d):
    d = split(back_out(d))
    dp = d @ v.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(size)
    return (
      back_q(join(ds @ k))
      + back_k(join(ds.swapaxes(2, 3) @ q))
      + back_v(join(p.swapaxes(2, 3) @ d))
    )

  return out, back


def dense(grads, weights, name, x):
  kernel = weights[name + '/kernel']

  def back(dy):
    rows, outs = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    grads[name + '/kernel'] += rows.T @ outs
    grads[name + '/bias'] += outs.sum(0)
    return dy @ kernel.T

  return x @ kernel + weights[name + '/bias'], back


def layer_norm(grads, weights, name, x):
  gamma = weights[name + '/gamma']
  deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-12)
  unit = (x - x.mean(-1, keepdims=True)) / deviation

  def back(dy):
    axes = tuple(range(dy.ndim - 1))
    grads[name + '/gamma'] += (dy * unit).sum(axes)
    grads[name + '/beta'] += dy.sum(axes)
    d = dy * gamma
    along = unit * (d * unit).mean(-1, keepdims=True)
    return (d - d.mean(-1, keepdims=True) - along) / deviation

  return unit * gamma + weights[name + '/beta'], back


def gelu(x):
  """The tanh approximation."""
  slope = np.sqrt(2 / np.pi)
  t = np.tanh(slope * (x + 0.044715 * x**3))

  def back(dy):
    dt = (1 - t**2) * slope * (1 + 3 * 0.044715 * x**2)
    return dy * 0.5 * (1 + t + x * dt)

  return 0.5 * x * (1 + t), back


def softmax(x):
  x = np.exp(x - x.max(-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


def cross_entropy(logits, labels, weights):
  """Returns the weighted sum of -ln p(label), and its gradient."""
  p = softmax(logits)
  picked = np.take_along_axis(p, labels[..., None], -1)[..., 0]
  d = p.copy()
  np.put_along_axis(d, labels[..., None], (picked - 1)[..., None], -1)
  return -(weights * np.log(picked)).sum(), d * weights[..., None]
