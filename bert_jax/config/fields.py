"""Every field of an experiment's config: default, meaning, values, resumption.

`FIELDS` is the only place that declares a field. Checks of single values, what
a resumed run may change and the flags of `data.prepare` and `data.vocab` follow
from it; rules between fields are in `bert_jax.config_check`.
"""

import itertools

from ml_collections import config_dict

from bert_jax import errors
from bert_jax.config.declaration import (
  SAME_MEANING,
  SAME_RESULT,
  Choice,
  Field,
  Range,
  Text,
)

# Where nothing breaks at a certain size, the limit is far beyond what anyone
# trains.
_STEPS = Range(1, 2**31 - 1)  # an int32 counts them
_STEPS_OR_0 = Range(0, 2**31 - 1)
_PROCESSES = Range(-1, 4096)
_SHARE = Range(0, below=1)
# Above 0 in float32 too, so that nothing is divided by 0.
_EPSILON = Range(1e-37, below=1)
_DECAY = Range(0, 0.999999)  # float32 rounds larger values to 1
_TOKENS = Range(1, below=2**16)
_DTYPE = Choice('float32', 'bfloat16')
_GIVEN = Text(may_be_empty=False)
_LANGUAGE = Text(
  may_be_empty=False,
  # ISO 639 and, with a script or variety, what sentencex knows: zh-hans.
  pattern='[a-z]{2,3}(-[a-z]+)*(,[a-z]{2,3}(-[a-z]+)*)*',
  form=(
    'a code of ISO 639, which has two or three lower-case letters, such as '
    "'ko' for Korean, or one for each input"
  ),
)

FIELDS: dict[str, Field] = {
  'task': Field('pretraining', 'one of `bert_jax.tasks`', _GIVEN),
  'seed': Field(
    0,
    'seed of data, masks, new weights and dropout',
    Range(0, below=2**32),  # jax uses 32 bits
  ),
  'rng': Field(
    'threefry', 'generator of dropout; rbg is faster', Choice('threefry', 'rbg')
  ),
  'init_from': Field(
    '',
    'a trained model to start from: a run (or WORKDIR@STEP), hf:OWNER/NAME or'
    ' another that bert_jax.convert reads; empty is new weights',
  ),
  'continue_from': Field(
    '',
    'a run, or WORKDIR@STEP, to go on from, with optimizer and place in the '
    'data',
  ),
  'resize_positions': Field(
    False, 'cut or extend the position embeddings of init_from to max_positions'
  ),
  'profile_steps': Field(
    0,
    'updates to trace for xprof, after the first; 0 is off',
    _STEPS_OR_0,
    SAME_RESULT,
  ),
  # The model.
  'model.num_layers': Field(12, 'layers of the encoder', Range(1, 1024)),
  'model.hidden_size': Field(768, 'units of a hidden state', Range(1, 2**16)),
  'model.num_heads': Field(12, 'attention heads of a layer', Range(1, 2**16)),
  'model.mlp_size': Field(3072, 'hidden units of the MLP', Range(1, 2**18)),
  'model.max_positions': Field(512, 'most tokens of a row', Range(8, 2**16)),
  'model.dropout': Field(
    0.1, 'dropout rate of embeddings and sublayers, in 256ths', _SHARE
  ),
  'model.attention_dropout': Field(
    0.1, "dropout rate of attention's probabilities, in 256ths", _SHARE
  ),
  'model.activation': Field(
    'gelu_tanh',
    "activation of the MLP; gelu_tanh is Google's",
    Choice('gelu', 'gelu_tanh', 'relu'),
  ),
  'model.body': Field(
    'classic',
    "the layers: BERT's, or ModernBERT's (docs/modern.md)",
    Choice('classic', 'modern'),
  ),
  'model.window': Field(
    128,
    'of the modern body: tokens that a local layer sees, half on each side',
    Range(2, 2**16),
  ),
  'model.global_every': Field(
    3, 'of the modern body: every so many layers, one sees all', Range(1, 1024)
  ),
  'model.rope_theta': Field(
    10_000.0,
    'of the modern body: base of the wavelengths of layers that see all',
    Range(1, 1e9),
  ),
  'model.local_rope_theta': Field(
    10_000.0, 'the same, of local layers', Range(1, 1e9)
  ),
  'model.pooling': Field(
    'cls',
    "of the modern body: the hidden state that stands for a text, [CLS]'s or the mean",
    Choice('cls', 'mean'),
  ),
  'model.norm': Field(
    'post',
    'LayerNorm after each sublayer (BERT) or before it',
    Choice('post', 'pre'),
  ),
  'model.norm_epsilon': Field(1e-12, "added to LayerNorm's variance", _EPSILON),
  'model.initializer': Field(
    'truncated_normal',
    'distribution of initial weights',
    Choice('truncated_normal', 'normal'),
  ),
  'model.initializer_std': Field(
    0.02, 'standard deviation of initial weights', Range(above=0, most=1)
  ),
  'model.attention_init': Field(
    'random',
    'random; wide: attention adds more from the start; neighbours: and the first '
    'heads look at the tokens beside each (docs/plateau.md)',
    Choice('neighbours', 'wide', 'random'),
  ),
  'model.dtype': Field('float32', 'type of activations', _DTYPE),
  'model.mask_value': Field(
    -10_000.0,
    'added to the scores of masked keys',
    # Far below any score, and finite in float32.
    Range(-3.4028234663852886e38, -1000),
  ),
  'model.bilstm': Field(
    0, 'fine-tuning: units each way of a BiLSTM below the head', Range(0, 2**16)
  ),
  # Text, and how it becomes training data.
  'data.input': Field(
    'python-docs',
    'files, globs, folders, gs://…, hf://datasets/OWNER/NAME/FILES, '
    'tfds:NAME/CONFIG:SPLIT or python-docs, separated by commas, of kinds in '
    'docs/data.md',
    _GIVEN,
    in_runs='for fine-tuning a folder, or train=FILE,dev=FILE,test=FILE',
  ),
  'data.weights': Field(
    (),
    'how often each input is used, relative to passes, such as 1,2.5',
    Range(above=0, most=1000),
    example=(1.0, 2.5),
  ),
  'data.size_power': Field(
    1.0,
    'power of its size by which an input is used, beside weights',
    Range(0, 1),
  ),
  'data.general': Field(
    '',
    'with init_from, an input of general text to mix in, so that less is forgotten',
  ),
  'data.general_share': Field(
    0.1, 'share of data.general in the text', Range(above=0, below=1)
  ),
  'data.add_words': Field(
    0,
    'with init_from, words of data.input to add to the vocabulary: those that save '
    'the most pieces; each starts as the mean of its pieces',
    Range(0, 2**20),
  ),
  'data.layout': Field(
    'paragraphs',
    'how plain text is laid out: paragraphs, a sentence or a document per '
    'line, or a file per document (docs/data.md)',
    Choice('paragraphs', 'sentences', 'lines', 'files'),
  ),
  'data.language': Field(
    'en',
    'of the text or of each input, ISO 639, such as en,ko; splits sentences',
    _LANGUAGE,
  ),
  'data.field': Field('text', 'field of JSON and TFDS with the text', _GIVEN),
  'data.min_chars': Field(
    50, 'characters; shorter documents are dropped', Range(0, 2**31 - 1)
  ),
  'data.max_documents': Field(
    0,
    'most documents to read, in fine-tuning rows per file; 0 is all',
    Range(0, 2**63 - 1),
  ),
  'data.vocab': Field(
    '',
    'the vocabulary, a file with one entry per line',
    in_runs="empty trains one on the input or, with init_from, is the source's",
  ),
  'data.vocab_size': Field(
    30522,
    'entries of the vocabulary, with special tokens',
    Range(6, 2**24),  # five are special
  ),
  'data.lowercase': Field(True, 'whether text is lower-cased'),
  'data.strip_accents': Field(
    'auto',
    'whether accents are stripped; auto: from uncased text, unless its '
    'vocabulary or script needs them (docs/data.md)',
    Choice('auto', 'as_lowercase', 'true', 'false'),
    # The config is checked against the prepared data, which fix it.
    SAME_RESULT,
  ),
  'data.rows': Field(
    'pairs',
    'what rows hold: pairs; documents in turn; one document (docs/data.md)',
    Choice('pairs', 'full_sentences', 'doc_sentences'),
  ),
  'data.passes': Field(5, 'times that each document is used', Range(1, 1000)),
  'data.short_seq_prob': Field(
    0.1, 'share of passes that use a shorter target', Range(0, 1)
  ),
  'data.pack': Field(
    1,
    "pairs per row, at most; 1 is the paper's",
    Range(1, 255),  # masking counts pairs in 8 bits
  ),
  'data.negatives': Field(
    'input',
    'where a random second text is from: the same input, or (Google) any',
    Choice('input', 'uniform'),
    SAME_RESULT,  # as strip_accents
  ),
  'data.heldout': Field(
    0.01,
    "share of each input's text kept for evaluation; more of small ones "
    '(docs/data.md)',
    Range(above=0, most=0.9),
    in_runs='for fine-tuning, share of the training rows without a dev file',
  ),
  'data.shards': Field(
    0, 'logical shards; 0: one per 64 MB of text, 256 at least', Range(0, 2**16)
  ),
  'data.workers': Field(
    -1,
    'processes that prepare data; -1 is one per core',
    _PROCESSES,
    SAME_RESULT,
  ),
  'data.dir': Field(
    '',
    'directory of prepared data; empty is WORKDIR/data',
    resume=SAME_RESULT,  # its data is compared by hash
  ),
  # Columns of the files that a model is fine-tuned on, other than GLUE's. For
  # tagging, columns by number: of the word (0) and of the tag (-1, the last).
  'data.text': Field('', 'column of the text'),
  'data.pair': Field(
    '', 'column of the second text of a pair; empty for single texts'
  ),
  'data.label': Field('', 'column of the label'),
  'data.choices': Field(
    '', 'a JSONL field with a list, or how names of numbered columns begin'
  ),
  # What follows from the data is filled in before the run starts: phases.steps,
  # optimizer.warmup_steps and, if 0, learning_rate, phases.seq_length (lowered
  # to the longest row's) and, with init_from, model, data.vocab_size, lowercase
  # and strip_accents, and objective.
  'finetuning.glue': Field(
    '', 'a task of GLUE, such as rte; empty is files with the columns above'
  ),
  'finetuning.epochs': Field(
    0.0,
    "times that a row is seen; 0: the paper's, more of small models",
    Range(0, 100_000),
  ),
  'finetuning.warmup': Field(0.1, 'share of the steps that warm up', _SHARE),
  'finetuning.select': Field(
    'last',
    'the result: the last parameters, or the best on dev by the first metric',
    Choice('last', 'best'),
  ),
  'finetuning.head_dropout': Field(
    0.1, 'dropout rate before the head, in 256ths', _SHARE
  ),
  'finetuning.head_bias': Field(
    'zeros',
    "first biases of a new head, maybe by the labels' frequencies or mean",
    Choice('auto', 'zeros', 'labels'),
  ),
  'finetuning.reinit_layers': Field(
    0, 'top layers of init_from to re-initialise', Range(0, 1024)
  ),
  'finetuning.form': Field(
    'bert',
    "bert, or gpt's, with new tokens and the language model's loss "
    '(docs/finetuning.md)',
    Choice('bert', 'gpt'),
  ),
  'finetuning.features': Field(
    'none',
    'hidden states of init_from, maybe MODEL,MODEL, that a BiLSTM reads '
    '(table 7)',
    Choice(
      *('none', 'embeddings', 'second_to_last', 'last', 'weighted_sum_last_4'),
      *('concat_last_4', 'weighted_sum_all'),
    ),
  ),
  'finetuning.by_length': Field(
    True, 'rows of similar length share a short batch; filled in'
  ),
  'finetuning.regression': Field(False, 'labels are numbers, not classes'),
  'finetuning.metrics': Field(
    '', 'such as macro_f1,accuracy; the first decides; empty is the usual ones'
  ),
  'finetuning.multi_label': Field(
    False, 'several labels a text: a list, or columns of 0 and 1 with commas'
  ),
  'finetuning.doc_stride': Field(
    128, 'for spans: tokens between the begins of two windows', _TOKENS
  ),
  'finetuning.max_query_length': Field(
    64, 'for spans: tokens of a question, at most', _TOKENS
  ),
  'finetuning.max_answer_length': Field(
    30, 'for spans: tokens of an answer, at most', _TOKENS
  ),
  'finetuning.unanswerable': Field(
    False, 'for spans: whether a question may have no answer (SQuAD 2.0)'
  ),
  'finetuning.outputs': Field(
    0, 'classes, 1 for a number; filled in from the data', Range(0, 2**20)
  ),
  'finetuning.max_length': Field(
    0, 'most tokens of a row in predictions; filled in', Range(0, below=2**16)
  ),
  'finetuning.num_choices': Field(
    0, 'choices per row; filled in from the data', Range(0, 2**10)
  ),
  # The objective of pre-training.
  'objective.kind': Field(
    'mlm',
    'masked words, or a language model, left to right or rtl',
    Choice('mlm', 'ltr', 'rtl'),
  ),
  'objective.nsp': Field(True, 'next sentence prediction'),
  'objective.unigram_bias': Field(
    False,
    "the MLM decoder's bias starts at the words' log frequencies, not at 0",
  ),
  'objective.word_vectors': Field(
    False,
    'word embeddings start alike for words of like neighbours '
    '(docs/plateau.md)',
  ),
  'objective.sampled_words': Field(
    0,
    'words that a masked one is compared with; 0 is all (docs/plateau.md)',
    Range(0, below=2**20),
  ),
  'objective.mask_rate': Field(
    0.15, "predicted share of each sequence's tokens", Range(above=0, below=1)
  ),
  'objective.initial_mask_rate': Field(
    0.0,
    'share at first, that ends at mask_rate; 0: mask_rate',
    Range(0, below=1),
  ),
  'objective.mask_mix': Field(
    (0.8, 0.1, 0.1),
    'shares of masked tokens: [MASK], random, same',
    Range(0, 1),
  ),
  'objective.mask_unit': Field(
    'token',
    'what is masked as a whole; a word has all its pieces',
    Choice('token', 'word', 'span'),
  ),
  # One entry per phase; schedule and optimizer state continue across phases. A
  # phase of the same length as the one before continues its epoch.
  'phases.seq_length': Field(
    (128, 512),
    'tokens of a row, such as 128,512',
    Range(8, below=2**16),  # records count in 16 bits
  ),
  'phases.steps': Field((900_000, 100_000), 'updates', _STEPS),
  'phases.batch_size': Field(
    (256, 256), 'sequences per update, over all devices', Range(1, 2**20)
  ),
  'phases.accumulate': Field(
    (1, 1),
    'micro-batches that make one update',
    Range(1, 2**20),
    # Sums are divided once, for any number of micro-batches; but see
    # `workdir.claim`.
    SAME_MEANING,
  ),
  'phases.max_predictions': Field(
    (20, 76), 'masked tokens per sequence, at most', _TOKENS
  ),
  'phases.learning_rates': Field(
    (),
    'peak of each phase, with its own warm-up and decay; 0 goes on with the '
    'last',
    Range(0, 1),
    example=(1e-4,),
  ),
  'phases.warmups': Field(
    (),
    'updates of warm-up of each phase, with learning_rates',
    _STEPS_OR_0,
    example=(0,),
  ),
  'phases.mask_rates': Field(
    (),
    'predicted share in training, instead of objective.mask_rate, which held-out '
    'rows keep',
    Range(above=0, below=1),
    example=(0.3,),
  ),
  'phases.rope_thetas': Field(
    (),
    'model.rope_theta of each phase; the exported model has that of its own',
    Range(1, 1e9),
    example=(160_000.0,),
  ),
  # The optimizer and its schedule.
  'optimizer.algorithm': Field(
    'adamw',
    'lamb is for batches of thousands of rows; stable_adamw, which limits updates, '
    "is ModernBERT's, without clip_norm (1e30)",
    Choice('adamw', 'lamb', 'stable_adamw'),
  ),
  'optimizer.learning_rate': Field(
    1e-4,
    'at the end of the warm-up; filled in: in fine-tuning 0, with init_from -1',
    Range(-1, 1),
  ),
  'optimizer.warmup_steps': Field(
    10_000, 'updates in which the rate rises linearly from 0', _STEPS_OR_0
  ),
  'optimizer.schedule': Field(
    'linear',
    'linear decay to 0; or wsd: constant (as learning_rates say, in each phase), '
    'then decay_steps by 1 - sqrt',
    Choice('linear', 'wsd'),
  ),
  'optimizer.decay_steps': Field(
    0, 'last updates, in which the rate of wsd decays; 0 is none', _STEPS_OR_0
  ),
  'optimizer.b1': Field(0.9, "decay of Adam's first moment", _DECAY),
  'optimizer.b2': Field(0.999, "decay of Adam's second moment", _DECAY),
  'optimizer.epsilon': Field(
    1e-6, "added to the square root of Adam's second moment", _EPSILON
  ),
  'optimizer.bias_correction': Field(
    True, "whether Adam's moments are corrected for their start at 0"
  ),
  'optimizer.weight_decay': Field(
    0.01, 'weight decay, but not of LayerNorm and biases', Range(0, 1)
  ),
  'optimizer.clip_norm': Field(
    1.0, 'largest norm of the gradient', Range(above=0, most=1e30)
  ),
  'optimizer.clip_unit': Field(
    'batch',
    "what is averaged and clipped; Google's cores did it for their rows",
    Choice('batch', 'micro_batch'),
  ),
  'optimizer.decay_from': Field(
    'warmup',
    'where the decay starts; from zero, the rate drops after the warm-up',
    Choice('warmup', 'zero'),
  ),
  'optimizer.freeze': Field(
    '', 'regular expression, found in the names of what is not trained'
  ),
  'optimizer.reduce_dtype': Field(
    'float32', "type in which devices' gradients are added", _DTYPE
  ),
  # How a step is computed, which does not change its meaning; docs/speed.md.
  'compute.attention': Field(
    'auto',
    "how attention is computed (docs/speed.md); auto is the chip's best",
    Choice('auto', 'xla', 'recompute', 'fused', 'splash', 'flash'),
    SAME_MEANING,
  ),
  'compute.heads': Field(
    'auto',
    "shape of attention's kernels; separate is for mesh.model (docs/speed.md)",
    Choice('auto', 'flat', 'rows', 'separate'),
    SAME_MEANING,
  ),
  'compute.remat': Field(
    'none',
    'what is computed again in the backward pass: all but products, or layers',
    Choice('none', 'products', 'layer'),
    SAME_MEANING,
  ),
  'compute.last_layer': Field(
    'auto',
    'where pre-training computes the last layer: at all tokens, or those read',
    Choice('auto', 'all', 'predicted'),
    SAME_MEANING,
  ),
  'compute.matmul_precision': Field(
    'float32',
    'type that accelerators may round float32 operands of products to',
    Choice('float32', 'tensorfloat32', 'bfloat16'),
    SAME_MEANING,
  ),
  'compute.xla_options': Field(
    'auto',
    'NAME=VALUE[ NAME=VALUE] for the compiler, or auto',
    resume=SAME_MEANING,
  ),
  'mesh.model': Field(
    1, 'devices that split each layer', Range(1, 2**16), SAME_MEANING
  ),
  # What a run does besides training.
  'eval.every': Field(
    10_000,
    'steps between evaluations; 0 is only at the end; fine-tuning fills it in',
    _STEPS_OR_0,
    SAME_RESULT,  # but see `workdir.claim`
  ),
  'eval.sequences': Field(
    10_000,
    'most held-out sequences to evaluate on, before training ends',
    Range(1, 2**31 - 1),
    SAME_RESULT,
  ),
  'log.every': Field(
    100, 'steps between printed rows of the log', _STEPS, SAME_RESULT
  ),
  'checkpoint.every': Field(
    5_000, 'steps between checkpoints', _STEPS, SAME_RESULT
  ),
  'checkpoint.minutes': Field(
    15.0,
    'most minutes between checkpoints; 0 is any number',
    Range(0, 1e6),
    SAME_RESULT,
  ),
  'checkpoint.keep': Field(
    3, 'number of newest checkpoints to keep', _STEPS, SAME_RESULT
  ),
  'checkpoint.keep_every': Field(
    100_000,
    'steps between checkpoints kept forever; 0 keeps none',
    _STEPS_OR_0,
    SAME_RESULT,
  ),
  'checkpoint.start_over': Field(
    False,
    'restart if all checkpoints are damaged or missing',
    resume=SAME_RESULT,
  ),
}


def declare_fields() -> config_dict.ConfigDict:
  """Returns every field with its default; where models differ, BASE's."""
  c = config_dict.ConfigDict()
  for name, field in FIELDS.items():
    section, _, key = name.rpartition('.')
    if section and section not in c:
      c[section] = config_dict.ConfigDict()
    (c[section] if section else c)[key] = field.default
  return c.lock()


def check_fields(c: config_dict.ConfigDict, *prefixes: str):
  """Checks values of fields one by one: all, or those with a prefix."""
  for name, field in FIELDS.items():
    if name.startswith(prefixes or ''):
      if problem := field.find_problem(name, c[name]):
        raise errors.UserError(
          f'{problem}; change the config file or give --config.FIELD=VALUE.'
        )


def get_meanings() -> dict[str, str]:
  """Returns {name: meaning}, with the values that a field may have."""
  meanings = {}
  for name, field in FIELDS.items():
    parts = [field.meaning, field.in_runs]
    if isinstance(field.allowed, Choice):
      parts.append(f'one of {", ".join(field.allowed)}')
    meanings[name] = '; '.join(filter(None, parts))
  return meanings


def model_config(c: config_dict.ConfigDict, step: int | None = None):
  """Returns the model's part of a config, a `bert_config.BertConfig`.

  With `phases.rope_thetas`, it is that of a step, or of the end.
  """
  # Processes that prepare data read fields, and need no jax.
  from bert_jax.model import bert_config

  sizes = c.model.to_dict()
  del sizes['bilstm']  # not part of the encoder
  if thetas := c.phases.rope_thetas:
    ends = itertools.accumulate(c.phases.steps)
    begun = len(thetas) if step is None else 1 + sum(n < step for n in ends)
    sizes['rope_theta'] = thetas[min(begun, len(thetas)) - 1]
  return bert_config.BertConfig(
    vocab_size=c.data.vocab_size,
    causal=c.objective.kind in ('ltr', 'rtl'),
    reverse=c.objective.kind == 'rtl',
    **sizes,
  )
