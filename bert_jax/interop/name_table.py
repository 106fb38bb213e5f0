"""Our names of BERT's parameters, Hugging Face's and Google's: one table."""

from typing import NamedTuple

from bert_jax.model import bert_config

# Parts that a file holds whole or not at all. Only the encoder is always there.
PARTS = ('encoder', 'mlm', 'pooler', 'nsp')

# Our module, Hugging Face's, Google's, its kind (`_KINDS`) and the shape of its
# kernel or embedding, [from, to], in the letters of `model/encoder.py`; S is the number
# of positions. {i} is a layer; {p} is query, key and value, one module here.
_EMBEDDINGS = (
  ('word', 'word_embeddings', 'word_embeddings', 'embedding', 'VD'),
  ('position', 'position_embeddings', 'position_embeddings', 'embedding', 'SD'),
  ('type', 'token_type_embeddings', 'token_type_embeddings', 'embedding', 'TD'),
  ('norm', 'LayerNorm', 'LayerNorm', 'norm', 'D'),
)
_LAYER = (
  ('attention/qkv', 'attention.self.{p}', 'attention/self/{p}', 'qkv', 'DD'),
  (
    'attention/out',
    'attention.output.dense',
    'attention/output/dense',
    'out',
    'DD',
  ),
  (
    'attention_norm',
    'attention.output.LayerNorm',
    'attention/output/LayerNorm',
    'norm',
    'D',
  ),
  ('mlp_in', 'intermediate.dense', 'intermediate/dense', 'dense', 'DF'),
  ('mlp_out', 'output.dense', 'output/dense', 'dense', 'FD'),
  ('mlp_norm', 'output.LayerNorm', 'output/LayerNorm', 'norm', 'D'),
)
_MLM = (
  ('transform', 'transform.dense', 'transform/dense', 'dense', 'DD'),
  ('norm', 'transform.LayerNorm', 'transform/LayerNorm', 'norm', 'D'),
  ('bias', 'bias', 'output_bias', 'bare', 'V'),
)
_POOLER = (('pooler', 'pooler.dense', 'pooler/dense', 'dense', 'DD'),)
_NSP = (('nsp', 'seq_relationship', 'seq_relationship', 'nsp', 'D2'),)
# The part, and how the names of its modules begin.
_GROUPS = (
  (
    _EMBEDDINGS,
    'encoder',
    'embeddings/',
    'bert.embeddings.',
    'bert/embeddings/',
  ),
  (
    _LAYER,
    'encoder',
    'encoder/layer_{i}/',
    'bert.encoder.layer.{i}.',
    'bert/encoder/layer_{i}/',
  ),
  (_MLM, 'mlm', 'mlm/', 'cls.predictions.', 'cls/predictions/'),
  (_POOLER, 'pooler', '', 'bert.', 'bert/'),
  (_NSP, 'nsp', '', 'cls.', 'cls/'),
)
# How the three names of each tensor end, its form (`rename.FORMS`), and who
# keeps it [to, from]: of Google's kernels only that of NSP.
_BIAS = ('/bias', '.bias', '/bias', 'same', ())
_KINDS = {
  'embedding': (('/embedding', '.weight', '', 'same', ()),),
  'norm': (
    ('/scale', '.weight', '/gamma', 'same', ()),
    ('/bias', '.bias', '/beta', 'same', ()),
  ),
  'dense': (('/kernel', '.weight', '/kernel', 'same', ('hf',)), _BIAS),
  'qkv': (
    ('/kernel', '.weight', '/kernel', 'qkv', ('hf',)),
    ('/bias', '.bias', '/bias', 'qkv_bias', ()),
  ),
  'out': (('/kernel', '.weight', '/kernel', 'out', ('hf',)), _BIAS),
  'nsp': (
    ('/kernel', '.weight', '/output_weights', 'same', ('hf', 'google')),
    ('/bias', '.bias', '/output_bias', 'same', ()),
  ),
  'bare': (('', '', '', 'same', ()),),
}

# Copies of tied parameters.
HF_TIED = {
  'cls.predictions.decoder.weight': 'bert.embeddings.word_embeddings.weight',
  'cls.predictions.decoder.bias': 'cls.predictions.bias',
}


class Row(NamedTuple):
  """One parameter of ours and what it is elsewhere.

  Attributes:
    part: one of `PARTS`.
    ours: our name.
    hf: Hugging Face's names: one, or three for query, key and value.
    google: Google's names, as many.
    form: what it takes to make these of ours, see `rename.FORMS`.
    shape: of each of them, [from, to] if it is a kernel.
    transposed_in: who keeps it [to, from]: 'hf', 'google'.
  """

  part: str
  ours: str
  hf: tuple[str, ...]
  google: tuple[str, ...]
  form: str
  shape: tuple[int, ...]
  transposed_in: tuple[str, ...]


def list_rows(config: bert_config.BertConfig) -> list[Row]:
  """Returns a row for every parameter of a BERT with all its heads."""
  sizes = {
    'V': config.vocab_size,
    'S': config.max_positions,
    'T': config.type_vocab_size,
    'D': config.hidden_size,
    'F': config.mlp_size,
    '2': 2,
  }
  found = []
  for modules, part, *starts in _GROUPS:
    for i in range(config.num_layers if modules is _LAYER else 1):
      for *stems, kind, letters in modules:
        for *ends, form, transposed_in in _KINDS[kind]:
          names = map(''.join, zip(starts, stems, ends, strict=True))
          (ours,), hf, google = (_filled(name, i) for name in names)
          # A bias is as long as its kernel is wide.
          used = letters[-1:] if ours.endswith('/bias') else letters
          shape = tuple(sizes[letter] for letter in used)
          found.append(Row(part, ours, hf, google, form, shape, transposed_in))
  return found


def _filled(name: str, i: int) -> tuple[str, ...]:
  parts = ('query', 'key', 'value') if '{p}' in name else ('',)
  return tuple(name.format(i=i, p=p) for p in parts)
