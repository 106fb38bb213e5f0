"""Writes the folder that Hugging Face transformers loads."""

import json
import os
import shutil

import safetensors.numpy
import tokenizers

from bert_jax import errors
from bert_jax import tokenizer as tokenizer_lib
from bert_jax.interop import table

FILES = (
  'config.json',
  'model.safetensors',
  'special_tokens_map.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'vocab.txt',
)


def export(directory: str, params, config, with_nsp: bool, tokenizer):
  """Writes a folder that transformers' Auto classes load.

  The folder is written beside its place, flushed to the disk and renamed. An
  earlier export is moved away first and deleted last: a kill at any moment
  leaves the old or the new one under the name or, between the two renames, the
  old one beside it as `.NAME.old`, from where the next export takes it back.

  Args:
    directory: local folder; may hold an earlier export, but nothing else.
    params: nested dict of arrays, as `heads.PretrainingModel` makes it.
    config: what the model is.
    with_nsp: whether it has the pooler and the NSP head.
    tokenizer: a `tokenizer.Tokenizer`.

  Raises:
    errors.UserError: for a folder that cannot be written or replaced and for
      what `table.to_hf` refuses.
  """
  if '://' in directory:
    raise errors.UserError(
      f'cannot export to {directory}; export to a local folder and copy it.'
    )
  tensors = table.to_hf(params, config, with_nsp)
  table.check_vocabulary(tokenizer, config)
  directory = os.path.realpath(directory)
  parent, name = os.path.split(directory)
  new, old = (os.path.join(parent, f'.{name}.{x}') for x in ('new', 'old'))
  try:
    os.makedirs(parent, exist_ok=True)
    _check_replaceable(directory)
    if os.path.lexists(old) and not os.path.lexists(directory):
      os.rename(old, directory)
    _remove(new, old)
    os.mkdir(new)
    try:
      _write(new, tensors, config, with_nsp, tokenizer)
      if os.path.lexists(directory):
        os.rename(directory, old)
      os.rename(new, directory)
    except BaseException:
      if os.path.lexists(old) and not os.path.lexists(directory):
        os.rename(old, directory)
      _remove(new)
      raise
    _sync(parent)
    _remove(old)
  except OSError as error:
    raise errors.UserError(f'cannot write {directory}: {error}.') from error


def _check_replaceable(directory):
  if not os.path.lexists(directory):
    return
  if not os.path.isdir(directory):
    raise errors.UserError(
      f'{directory} is a file; name a folder that does not exist yet.'
    )
  other = sorted(set(os.listdir(directory)) - set(FILES))
  if other:
    raise errors.UserError(
      f'{directory} holds {table.some(other)}, which an export would delete; '
      'name a folder that is empty or does not exist yet.'
    )


def _remove(*folders):
  for folder in folders:
    if os.path.lexists(folder):
      shutil.rmtree(folder)


def _sync(path):
  """Waits until a file's bytes or a folder's names are on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def _write(folder, tensors, config, with_nsp, tokenizer):
  """Writes every file of an export and flushes them to the disk."""

  def path(name):
    return os.path.join(folder, name)

  safetensors.numpy.save_file(
    tensors, path('model.safetensors'), metadata={'format': 'pt'}
  )
  for name, value in (
    ('config.json', config_json(config, with_nsp, tokenizer.pad_id)),
    ('tokenizer_config.json', _tokenizer_config(config, tokenizer)),
    ('special_tokens_map.json', _special_tokens()),
  ):
    with open(path(name), 'w', encoding='utf-8') as f:
      f.write(json.dumps(value, indent=2, ensure_ascii=False) + '\n')
  with open(path('vocab.txt'), 'w', encoding='utf-8', newline='\n') as f:
    f.writelines(f'{word}\n' for word in tokenizer.vocab)
  _fast_tokenizer(tokenizer).save(path('tokenizer.json'))
  for name in FILES:
    _sync(path(name))
  _sync(folder)


def config_json(config, with_nsp: bool, pad_id: int) -> dict:
  """Returns what config.json says of the model."""
  if with_nsp:
    architecture = 'BertForPreTraining'
  else:
    architecture = 'BertLMHeadModel' if config.causal else 'BertForMaskedLM'
  theirs = {ours: name for name, ours in reversed(table.HIDDEN_ACT.items())}
  # gelu_tanh must be theirs too: with 'gelu' the logits would differ silently.
  return {
    'architectures': [architecture],
    'model_type': 'bert',
    **{
      name: getattr(config, ours)
      for name, (ours, _) in table.CONFIG_FIELDS.items()
    },
    'hidden_act': theirs[config.activation],
    'pad_token_id': pad_id,
    'is_decoder': config.causal,
    'tie_word_embeddings': True,
    'position_embedding_type': 'absolute',
    'classifier_dropout': None,
    'torch_dtype': 'float32',
  }


def _special_tokens():
  return {f'{t[1:-1].lower()}_token': t for t in tokenizer_lib.SPECIAL}


def _tokenizer_config(config, tokenizer):
  return {
    # Loads tokenizer.json as it stands. BertTokenizer of transformers 5 builds
    # its own, in which words of 101 to 200 characters become [UNK].
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'do_lower_case': tokenizer.lowercase,
    'strip_accents': None,  # as do_lower_case says
    'tokenize_chinese_chars': True,
    'model_max_length': config.max_positions,
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    'clean_up_tokenization_spaces': False,
    **_special_tokens(),
  }


def _fast_tokenizer(tokenizer):
  """Returns the `tokenizers.Tokenizer` that tokenizer.json holds."""
  fast = tokenizers.Tokenizer(
    tokenizers.models.WordPiece(
      {word: i for i, word in enumerate(tokenizer.vocab)},
      unk_token='[UNK]',
      max_input_chars_per_word=200,
    )
  )
  fast.normalizer = tokenizers.normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=True,
    strip_accents=tokenizer.lowercase,
    lowercase=tokenizer.lowercase,
  )
  fast.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
  fast.decoder = tokenizers.decoders.WordPiece(prefix='##')
  fast.post_processor = tokenizers.processors.TemplateProcessing(
    single='[CLS]:0 $A:0 [SEP]:0',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[('[CLS]', tokenizer.cls_id), ('[SEP]', tokenizer.sep_id)],
  )
  fast.add_special_tokens(list(tokenizer_lib.SPECIAL))
  return fast
