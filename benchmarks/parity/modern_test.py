"""ModernBERT's tensors, logits, gradients and training are transformers'."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pretraining_test
import pytest
import training_parity

from bert_jax import config
from bert_jax.interop import hugging_face, rename
from bert_jax.model import heads
from bert_jax.pretraining import pretrain
from bert_jax.tokenization import tokenizer

WORDS = (*tokenizer.SPECIAL, *(f'##{i}' for i in range(95)))
LENGTH, LENGTHS = 40, (40, 31, 17, 9)  # of documents
SIZES = {
  'vocab_size': len(WORDS),
  'hidden_size': 64,
  'intermediate_size': 96,
  'num_attention_heads': 4,
  'max_position_embeddings': 128,
  'local_attention': 8,  # documents are longer
  'global_rope_theta': 16000.0,
  'local_rope_theta': 100.0,
  **{'pad_token_id': 0, 'cls_token_id': 2, 'bos_token_id': 2},
  **{'sep_token_id': 3, 'eos_token_id': 3},
}


def make_rows():
  """Returns documents in a row each, and in as few rows as hold them."""
  rng = np.random.default_rng(0)
  ids = rng.integers(5, len(WORDS), (len(LENGTHS), LENGTH))
  mask = (np.arange(LENGTH) < np.array(LENGTHS)[:, None]).astype(np.int32)
  predicted = (mask > 0) & (rng.random(mask.shape) < 0.3)
  alone = {'ids': ids * mask, 'mask': mask}
  alone['labels'] = np.where(predicted, ids, -100)
  packed = {name: np.zeros((2, 64), np.int32) for name in (*alone, 'at')}
  packed |= {'numbers': np.zeros((2, 64), np.int32)}
  packed['labels'] -= 100
  ends = [0, 0]
  for i, length in enumerate(LENGTHS):
    row = i % 2
    cut = slice(ends[row], ends[row] + length)
    for name in alone:
      packed[name][row, cut] = alone[name][i, :length]
    packed['at'][row, cut] = np.arange(length)
    packed['numbers'][row, cut] = i // 2 + 1
    ends[row] += length
  return alone, packed


def make_batch(rows):
  every = np.broadcast_to(np.arange(rows['ids'].shape[1]), rows['ids'].shape)
  batch = {
    'input_ids': rows['ids'],
    'input_mask': rows['mask'],
    'segment_ids': 0 * rows['ids'],
    'masked_lm_positions': every,
    'masked_lm_ids': np.maximum(rows['labels'], 0),
    'masked_lm_weights': (rows['labels'] >= 0).astype(np.float32),
  }
  if 'at' in rows:
    batch |= {'position_ids': rows['at'], 'sequence_ids': rows['numbers']}
  return jax.tree.map(jnp.asarray, batch)


def differ(ours, theirs):
  """Returns the largest difference, as a share of the largest value."""
  assert ours.shape == theirs.shape
  return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


@pytest.mark.parametrize('layers, every', [(1, 3), (4, 1), (4, 2), (4, 3)])
def test_tensors_logits_and_gradients(tmp_path, in_transformers, layers, every):
  alone, packed = make_rows()
  sizes = SIZES | {'num_hidden_layers': layers}
  sizes |= {'global_attn_every_n_layers': every}
  job = {'transformers': sizes, 'folder': str(tmp_path / 'theirs')}
  there = in_transformers('save_modern', job, alone)
  tokenizer.write_vocab(WORDS, str(tmp_path / 'theirs' / 'vocab.txt'))
  settings = tmp_path / 'theirs' / 'tokenizer_config.json'
  settings.write_text('{"do_lower_case": false}')
  model = hugging_face.read(str(tmp_path / 'theirs'))
  assert model.report == ([], [])
  folder = str(tmp_path / 'ours')
  hugging_face.export(folder, model.params, model.config, model.tokenizer)
  back = in_transformers('load_modern', {'folder': folder}, {})
  back.pop('decoder.weight')  # tied
  theirs = {
    kind: {
      name.removeprefix(kind): x
      for name, x in there.items()
      if name.startswith(kind)
    }
    for kind in ('weights/', 'gradient/')
  }
  assert back.keys() == theirs['weights/'].keys()
  for name, x in back.items():
    assert np.array_equal(x, theirs['weights/'][name]), name
  module, logits = heads.PretrainingModel(model.config, False), {}
  compute = functools.partial(pretrain.compute_sums, module, key=None)
  for name, rows in (('alone', alone), ('packed', packed)):
    batch = make_batch(rows)
    count = batch['masked_lm_weights'].sum()

    def compute_loss(params, batch=batch, count=count):
      return compute(params, batch)[0]['mlm_loss'] / count

    with jax.default_matmul_precision('highest'):
      loss, grads = jax.value_and_grad(compute_loss)(model.params)
      logits = module.apply({'params': model.params}, batch)[0]
    logits = np.asarray(logits)
    if name == 'packed':
      of = [
        (i % 2, sum(LENGTHS[i - 2 : i - 1] if i > 1 else ())) for i in range(4)
      ]
      found = [
        logits[r, a : a + n] for (r, a), n in zip(of, LENGTHS, strict=True)
      ]
    else:
      found = [x[:n] for x, n in zip(logits, LENGTHS, strict=True)]
    wanted = [
      x[:n] for x, n in zip(there['found/logits'], LENGTHS, strict=True)
    ]
    off = differ(np.concatenate(found), np.concatenate(wanted))
    grads = rename.to_theirs(grads, model.config, 'hf')
    assert grads.keys() == theirs['gradient/'].keys()
    worst = max(differ(x, theirs['gradient/'][k]) for k, x in grads.items())
    print(f'{layers} layers, global every {every}, {name}: logits {off:.1e}, '
          f'gradients {worst:.1e}, loss {abs(loss - there["found/loss"]):.1e}')  # fmt: skip
    assert max(off, worst) <= 1e-5


def test_losses_of_200_updates(tmp_path, in_transformers):
  more = (
    ',body=modern,rows=pairs,norm_epsilon=1e-5,'
    'num_layers=4,mlp_size=192,window=16,rope_theta=160000,'
    'initializer=truncated_normal,attention_init=random'
  )
  how = str(tmp_path), 'hf', 200, 1, more
  c, objective, state, batches = pretraining_test.start(*how)
  bert = config.model_config(c)
  words = training_parity.get_words(c, state)
  weights = rename.to_theirs(words, bert, 'hf')
  arrays = {f'weights/{name}': x for name, x in weights.items()}
  arrays |= {name: np.stack([b[name] for b in batches]) for name in batches[0]}
  special = tokenizer.Tokenizer(tokenizer.SPECIAL)
  fields = hugging_face.describe_model(bert, words, special)
  job = {'transformers': fields, 'optimizer': c.optimizer.to_dict()}
  there = in_transformers('pretrain_modern', job, arrays)['losses']
  ours = training_parity.ours(c, objective, state, batches)
  pretraining_test.compare(ours, there, 1e-4)
