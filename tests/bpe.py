"""A byte-level BPE tokenizer.json like ModernBERT's, trained on a few words."""

import functools
import json

from tokenizers import (
  AddedToken,
  Tokenizer,
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
  trainers,
)

from bert_jax.tokenization import fast_tokenizer

TEXT = "the cat sat on the mat . The cats were naïve . they don't see 한국어 "
SPECIAL = '[UNK] [CLS] [SEP] [PAD] [MASK]'.split()


@functools.cache
def make(size: int = 300, texts: tuple[str, ...] = (TEXT,) * 9) -> str:
  """Returns the file; second texts have segment 0, too."""
  made = Tokenizer(models.BPE())
  made.normalizer = normalizers.NFC()
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  made.decoder = decoders.ByteLevel()
  alphabet = pre_tokenizers.ByteLevel.alphabet()
  how = {'initial_alphabet': sorted(alphabet), 'show_progress': False}
  trainer = trainers.BpeTrainer(vocab_size=size, **how)
  made.train_from_iterator(texts, trainer)
  made.add_tokens([AddedToken('<mail>'), AddedToken('  ')])
  made.add_special_tokens(
    [AddedToken(x, lstrip=x == '[MASK]', normalized=False) for x in SPECIAL]
  )
  ids = [(x, made.token_to_id(x)) for x in ('[CLS]', '[SEP]')]
  made.post_processor = processors.TemplateProcessing(
    single='[CLS] $A [SEP]',
    pair='[CLS] $A [SEP] $B:0 [SEP]:0',
    special_tokens=ids,
  )
  return made.to_str()


def load(**changes) -> fast_tokenizer.FastTokenizer:
  """Returns the tokenizer of that file, with some of its parts changed."""
  text = json.dumps(json.loads(make()) | changes)
  return fast_tokenizer.parse(text.encode(), 'tokenizer.json')
