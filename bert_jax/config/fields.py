"""Declares every field of an experiment's config, with unit and meaning."""

from ml_collections import config_dict

from bert_jax.model import bert_config

# Example values, which show the type of fields whose default is empty.
EXAMPLES = {'data.weights': (1.0, 2.5)}


def declare_fields() -> config_dict.ConfigDict:
  """Returns every field with its default.

  Fields that an older saved config lacks have the default. Where the paper's
  models differ, the default is that of BASE.
  """
  c = config_dict.ConfigDict()
  c.task = 'pretraining'  # one of `bert_jax.tasks`
  c.seed = 0  # seed of data, masks, initial weights and dropout
  c.rng = 'threefry'  # dropout: threefry (same on any layout) or rbg (fast)
  # A trained model to start from: the workdir of a run, its checkpoint of a step
  # (WORKDIR@STEP) or another model that bert_jax.convert reads; empty is new
  # weights. The optimizer starts new.
  c.init_from = ''
  # Cut the position embeddings of init_from to max_positions, or extend them
  # with new ones, where they differ.
  c.resize_positions = False
  # Updates to trace for xprof, after the first steps of the run, so without
  # compiling; 0 is off.
  c.profile_steps = 0

  _declare_model(c)
  _declare_data(c)
  _declare_finetuning(c)
  _declare_objective(c)
  _declare_phases(c)
  _declare_optimizer(c)
  _declare_compute(c)
  _declare_run(c)
  return c.lock()


def _declare_model(c):
  c.model = config_dict.ConfigDict()
  c.model.num_layers = 12
  c.model.hidden_size = 768
  c.model.num_heads = 12
  c.model.mlp_size = 3072
  c.model.max_positions = 512  # tokens
  # Rate for embeddings and each sublayer's output, rounded to 256ths.
  c.model.dropout = 0.1
  c.model.attention_dropout = 0.1  # rate for probabilities, rounded to 256ths
  c.model.activation = 'gelu_tanh'  # gelu_tanh (Google), gelu (erf) or relu
  c.model.norm = 'post'  # LayerNorm after each sublayer (BERT), or pre
  c.model.norm_epsilon = 1e-12
  c.model.initializer = 'truncated_normal'  # or normal
  c.model.initializer_std = 0.02
  # random (BERT); or neighbours: the first layer's heads start by looking at the
  # tokens beside each, which saves a long search (docs/plateau.md).
  c.model.attention_init = 'random'
  c.model.dtype = 'float32'  # type of activations: float32 or bfloat16
  c.model.mask_value = -10_000.0  # added to scores of masked keys
  # In fine-tuning: units of each direction of a two-layer BiLSTM between the
  # encoder and the head, with random weights; 0 is none.
  c.model.bilstm = 0


def _declare_data(c):
  c.data = config_dict.ConfigDict()
  # GLOB[,GLOB], tfds:NAME:SPLIT or python-docs; for fine-tuning a folder,
  # tfds:NAME, or train=FILE,dev=FILE,test=FILE.
  c.data.input = 'python-docs'
  # How often the documents of each input are used, relative to data.passes, for
  # example (1.0, 2.5); empty is 1 for each.
  c.data.weights = ()
  c.data.layout = 'paragraphs'  # of plain text: paragraphs, sentences or files
  c.data.language = 'en'  # for sentence splitting, ISO 639-1
  c.data.field = 'text'  # field of JSONL and TFDS that holds the text
  c.data.min_chars = 50  # characters; shorter documents are dropped
  # Maximum of documents to read, for fine-tuning of rows per file, which are a
  # sample; 0 is all.
  c.data.max_documents = 0
  c.data.vocab = ''  # a vocab.txt to use; empty trains one on the input
  c.data.vocab_size = 30522  # entries
  c.data.lowercase = True  # uncased
  # Whether accents and other nonspacing marks are stripped: true, false,
  # as_lowercase (from uncased text, like Google), or auto: from uncased text,
  # unless data.vocab has pieces with accents or, without data.vocab,
  # data.language or 1% of the characters are of a script without case.
  c.data.strip_accents = 'auto'
  c.data.passes = 5  # times that each document is cut into pairs
  c.data.short_seq_prob = 0.1  # share of passes that use a shorter target
  c.data.pack = 1  # pairs per row, at most; 1 is the paper's
  # Where a random second text comes from: another document of the same input,
  # or of any (uniform, as in Google's script).
  c.data.negatives = 'input'
  # Share of each input's text kept for evaluation; of an input below 25 MB up to
  # a tenth, see docs/data.md. For fine-tuning, share of the training rows if
  # there is no dev file.
  c.data.heldout = 0.01
  c.data.shards = 0  # logical shards; 0 is one per 64 MB of text, at least 256
  # Processes beside the main one: -1 is one per core; 0 is none, so that the
  # main process prepares data itself, or makes batches in a thread.
  c.data.workers = -1  # processes that prepare data
  c.data.loader_workers = 0  # processes that make batches
  c.data.skip_corrupt = False  # skip and count corrupt records instead of stop
  # Directory of prepared data, local or gs://; empty is WORKDIR/data.
  c.data.dir = ''

  # Columns of the files that a model is fine-tuned on, other than GLUE's.
  # For tagging, columns by number: of the word (0) and of the tag (-1, the last).
  c.data.text = ''  # the text
  c.data.pair = ''  # the second text of a pair; empty for single texts
  c.data.label = ''  # the label
  # For choices: a JSONL field with a list, or the beginning of the names of
  # columns that are numbered from 0.
  c.data.choices = ''


def _declare_finetuning(c):
  # What follows from the data is filled in before the run starts: phases.steps,
  # optimizer.warmup_steps and, if 0, learning_rate, phases.seq_length (lowered
  # to that of the longest row) and, with init_from, model, data.vocab_size, lowercase and
  # strip_accents, and objective.
  c.finetuning = config_dict.ConfigDict()
  # A task of GLUE, such as rte; empty is files with the columns above.
  c.finetuning.glue = ''
  # Times that each training row is seen; 0 is filled in: the paper's, or more
  # if a small model would make few updates.
  c.finetuning.epochs = 0.0
  c.finetuning.warmup = 0.1  # share of the steps
  # Which parameters are the result: the last, or the best of the evaluations on
  # dev, by the task's first metric. Dev's score is then optimistic.
  c.finetuning.select = 'last'
  c.finetuning.head_dropout = 0.1  # rate before the head, rounded to 256ths
  c.finetuning.reinit_layers = 0  # top layers of init_from to start anew
  # bert; or gpt: start, delimiter and extract tokens that are new, the last one
  # classified, and half the language model's loss added to the task's.
  c.finetuning.form = 'bert'
  # Hidden states of init_from to train a BiLSTM and a head on, computed once:
  # embeddings, second_to_last, last, weighted_sum_last_4, concat_last_4 or
  # weighted_sum_all (table 7). Those of several models, MODEL,MODEL, are
  # concatenated. none trains the whole model.
  c.finetuning.features = 'none'
  # Rows of similar length share a batch, which is as short as they allow, if that
  # saves more time than compiling takes; filled in by the number of updates.
  c.finetuning.by_length = True
  c.finetuning.regression = False  # labels are numbers, not classes
  # For spans: tokens from the beginning of a window of a long passage to that of
  # the next; tokens of a question and of an answer, at most; and whether a
  # question may have no answer, as in SQuAD 2.0.
  c.finetuning.doc_stride = 128
  c.finetuning.max_query_length = 64
  c.finetuning.max_answer_length = 30
  c.finetuning.unanswerable = False
  c.finetuning.outputs = 0  # classes, 1 for a number; filled in from the data
  # Tokens of a row in predictions, at most; filled in from phases.seq_length as
  # it was asked for, before it is lowered to the longest row of the data.
  c.finetuning.max_length = 0
  # Choices per row, 0 for other tasks; filled in from the data.
  c.finetuning.num_choices = 0


def _declare_objective(c):
  c.objective = config_dict.ConfigDict()
  # mlm, or a language model: ltr, from left to right, or rtl, right to left.
  c.objective.kind = 'mlm'
  c.objective.nsp = True  # next sentence prediction
  # The MLM decoder's bias starts at the words' log frequencies; BERT's at zeros.
  c.objective.unigram_bias = False
  c.objective.mask_rate = 0.15  # share of each sequence's tokens
  c.objective.mask_mix = (0.8, 0.1, 0.1)  # [MASK], random, same (table 8)
  c.objective.mask_unit = 'token'  # token, word (all its pieces) or span
  # One mask per pair and pass, as in Google's files, not a new one per epoch.
  c.objective.static_masks = False


def _declare_phases(c):
  # One entry per phase; schedule and optimizer state continue across phases.
  c.phases = config_dict.ConfigDict()
  c.phases.seq_length = (128, 512)  # tokens
  c.phases.steps = (900_000, 100_000)  # updates
  c.phases.batch_size = (256, 256)  # sequences per update, over all devices
  c.phases.accumulate = (1, 1)  # micro-batches that make one update
  c.phases.max_predictions = (20, 76)  # per sequence, at most


def _declare_optimizer(c):
  c.optimizer = config_dict.ConfigDict()
  # At the end of the warm-up; in fine-tuning, 0 is filled in by the model's size.
  c.optimizer.learning_rate = 1e-4
  c.optimizer.warmup_steps = 10_000  # from 0, linear; then linear down to 0
  c.optimizer.b1 = 0.9
  c.optimizer.b2 = 0.999
  c.optimizer.epsilon = 1e-6  # added outside the square root
  c.optimizer.bias_correction = True  # of Adam's moments
  c.optimizer.weight_decay = 0.01  # not on LayerNorm and biases
  c.optimizer.clip_norm = 1.0  # of the gradient
  # The unit that is averaged and clipped: batch; or micro_batch, whose clipped
  # gradients are then added up, as Google's TPU cores did with their rows.
  c.optimizer.clip_unit = 'batch'
  # Where the linear decay starts from the peak: at the end of the warmup, or at
  # step zero, so that the rate drops when the warm-up ends.
  c.optimizer.decay_from = 'warmup'
  # Each layer learns at this many times the rate of the one above it; the heads
  # at the full rate, the embeddings below the lowest layer. 1 is the same rate.
  c.optimizer.layer_decay = 1.0
  # Regular expression; parameters in whose names it is found are not trained,
  # such as ^(embeddings|encoder/layer_[0-5])/; empty trains all.
  c.optimizer.freeze = ''
  # Type in which the devices' gradients are added: float32, or bfloat16, which
  # sends half the bytes.
  c.optimizer.reduce_dtype = 'float32'


def _declare_compute(c):
  # How a step is computed, which does not change its meaning; docs/speed.md.
  c.compute = config_dict.ConfigDict()
  # xla (anywhere), recompute (anywhere; keeps no weights of attention for the
  # backward pass), fused (our TPU kernels) or cudnn (GPUs, bfloat16, without
  # attention dropout and packing); auto is the best on the chip for the phase's
  # length.
  c.compute.attention = 'auto'
  # Shape of attention's kernels in products: flat [D, 3 H K], or separate
  # [D, 3, H, K], which mesh.model needs; auto is the faster one.
  c.compute.heads = 'auto'
  # Rematerialization: none (blocks keep everything for the backward pass),
  # products (keep products with weights) or layer (keep only their input); the
  # rest is recomputed.
  c.compute.remat = 'none'
  # Scan over the layers: compiles faster, runs slower.
  c.compute.scan_layers = False
  # If model.dtype is float32, the type that accelerators may round operands of
  # products to: float32 (not at all), tensorfloat32 or bfloat16.
  c.compute.matmul_precision = 'float32'
  # NAME=VALUE[ NAME=VALUE] for the compiler; auto uses those for the chip.
  c.compute.xla_options = 'auto'


def _declare_run(c):
  c.mesh = config_dict.ConfigDict()
  # Devices along mesh axis `model`, which split each layer; the others split
  # the rows.
  c.mesh.model = 1

  c.eval = config_dict.ConfigDict()
  # Steps; 0 evaluates only at the end, but is filled in for fine-tuning: an
  # epoch, or a tenth of the steps if that is more.
  c.eval.every = 10_000
  # Held-out sequences, at most; in fine-tuning all of dev.
  c.eval.sequences = 10_000

  c.log = config_dict.ConfigDict()
  c.log.every = 100  # steps

  c.checkpoint = config_dict.ConfigDict()
  c.checkpoint.every = 5_000  # steps
  c.checkpoint.minutes = 15.0  # since the last one, at most; 0 is no limit
  c.checkpoint.keep = 3  # number of newest checkpoints to keep
  c.checkpoint.keep_every = 100_000  # steps; these are kept forever; 0 is none
  c.checkpoint.start_over = False  # restart at step 0 if all are damaged


def model_config(c: config_dict.ConfigDict) -> bert_config.BertConfig:
  """Returns the model's part of a config."""
  sizes = c.model.to_dict()
  del sizes['bilstm']  # is no part of the encoder
  return bert_config.BertConfig(
    vocab_size=c.data.vocab_size,
    causal=c.objective.kind in ('ltr', 'rtl'),
    reverse=c.objective.kind == 'rtl',
    **sizes,
  )
