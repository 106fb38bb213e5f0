"""Trains a WordPiece vocabulary on text.

The words are those that BERT's tokenizer sees, counted. SentencePiece's BPE
learns the pieces from the counts; then the most common characters are added,
both as first and as later piece, so that rare words are spelt, not unknown. BPE
suits WordPiece's greedy matching better than the unigram model, whose pieces
are chosen for Viterbi decoding.

  python -m bert_jax.data.vocab --input='wiki/**/wiki_*' --size=30522 \\
    --output=vocab.txt
"""

import collections
import io
import os
import tempfile
from collections.abc import Iterable, Sequence

import sentencepiece
from absl import flags

from bert_jax import command, errors, progress, tokenizer
from bert_jax.data import sources

# Counters are emptied or pruned beyond these numbers of entries, which bounds
# them to a few hundred MB.
_MAX_CHUNKS = 500_000
_MAX_WORDS = 2_000_000
_MAX_TRAINING_WORDS = 1_000_000  # the rest is too rare to make a piece

_MAX_CHARS_PER_WORD = 200  # the tokenizer takes longer words for [UNK]
_MIN_CHARACTERS = 1000
_COVERAGE = 0.9999  # of all characters: thousands where Chinese is written
_SPACE = '\u2581'  # marks the start of a word in SentencePiece


def train(texts: Iterable[str], size: int, lowercase: bool) -> list[str]:
  """Returns the vocabulary of `size` pieces for texts.

  Args:
    texts: lines or paragraphs, streamed.
    size: entries, special tokens included.
    lowercase: whether words are lower-cased and stripped of accents.

  Returns:
    Special tokens, characters by frequency, then pieces in the order in which
    BPE merged them. The same texts give the same list.

  Raises:
    errors.UserError: if the texts do not make `size` pieces.
  """
  words = count_words(texts, lowercase)
  characters = _characters(words)
  # Some pieces are characters again, so ask for as many more.
  learnt = _merges(words, size + len(characters)) if words else []
  # Where there are many characters, they leave most of the room to longer
  # pieces; what is left over is theirs.
  first = size // 4
  pieces = [*tokenizer.SPECIAL, *characters[:first], *learnt, *characters]
  pieces = list(dict.fromkeys(pieces))
  if len(pieces) < size:
    raise errors.UserError(
      f'the text has {len(words):,} different words, which make '
      f'{len(pieces):,} pieces, not the {size:,} of the vocabulary; give more '
      f'text or a size of at most {len(pieces):,}.'
    )
  return pieces[:size]


def count_words(texts: Iterable[str], lowercase: bool) -> collections.Counter:
  """Counts the words that BERT's tokenizer splits texts into.

  Beyond two million different words the rarest are forgotten.
  """
  chunks: collections.Counter[str] = collections.Counter()
  words: collections.Counter[str] = collections.Counter()
  with progress.Progress(None, 'B', 'counting words') as bar:
    for text in texts:
      chunks.update(tokenizer.chunks(text))
      bar.update(len(text))
      if len(chunks) > _MAX_CHUNKS:
        _split(chunks, words, lowercase)
        _prune(words)
        chunks.clear()
  _split(chunks, words, lowercase)
  return words


def write(vocab: Sequence[str], path: str):
  """Writes a vocabulary file, one piece per line, whole or not at all."""
  try:
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path + '.tmp', 'w', encoding='utf-8', newline='\n') as file:
      file.writelines(f'{piece}\n' for piece in vocab)
    os.replace(path + '.tmp', path)
  except OSError as error:
    raise errors.UserError(
      f'the vocabulary {path} cannot be written ({error.strerror}); give a '
      'place where files can be made.'
    ) from error


def _split(chunks, words, lowercase):
  """Adds the words of white-space chunks to the counts."""
  normalize = tokenizer.normalizer(lowercase).normalize_str
  split = tokenizer.pre_tokenizer().pre_tokenize_str
  for chunk, count in chunks.items():
    for word, _ in split(normalize(chunk)):
      if len(word) <= _MAX_CHARS_PER_WORD:
        words[word] += count


def _prune(words):
  """Forgets the rarest words until no more than the limit are left."""
  least = 1
  while len(words) > _MAX_WORDS:
    for word in [word for word, count in words.items() if count <= least]:
      del words[word]
    least += 1


def _characters(words) -> list[str]:
  """Returns the most common characters, as first and as later pieces."""
  counts = collections.Counter()
  joined = set()  # characters of longer words; others always stand alone
  for word, count in words.items():
    for c in word:
      counts[c] += count
    if len(word) > 1:
      joined.update(word)
  total = counts.total()
  out, covered = [], 0
  for n, (c, count) in enumerate(_by_count(counts)):
    if n >= _MIN_CHARACTERS and covered >= _COVERAGE * total:
      break
    out += [c, '##' + c] if c in joined else [c]
    covered += count
  return out


def _merges(words, size: int) -> list[str]:
  """Returns what BPE merges, most useful first, as WordPiece writes it."""
  model = io.BytesIO()
  with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, 'words.tsv')
    with open(path, 'w', encoding='utf-8') as file:
      for word, count in _by_count(words)[:_MAX_TRAINING_WORDS]:
        if _SPACE not in word:
          file.write(f'{word}\t{count}\n')
    sentencepiece.SentencePieceTrainer.train(
      input=path,
      input_format='tsv',
      model_writer=model,
      model_type='bpe',
      vocab_size=size,
      hard_vocab_limit=False,  # too small a text is our error to report
      normalization_rule_name='identity',  # BERT's has been applied
      character_coverage=_COVERAGE,
      unk_id=0,
      bos_id=-1,
      eos_id=-1,
      pad_id=-1,
      num_threads=1,
      minloglevel=2,
    )
  processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  pieces = [processor.id_to_piece(i) for i in range(1, len(processor))]
  return [
    piece[1:] if piece.startswith(_SPACE) else '##' + piece
    for piece in pieces
    if len(piece) > 1  # single characters are chosen by frequency
  ]


def _by_count(counts) -> list[tuple[str, int]]:
  """Returns items by falling count; ties in the order of the alphabet."""
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


# The command.

_SAMPLE_EVERY = 100  # paragraphs
_SAMPLE_CHARS = 5_000_000


def _define_flags():
  flags.DEFINE_list(
    'input', None, 'Files, globs, directories, tfds:NAME:SPLIT, python-docs.'
  )
  flags.DEFINE_string('output', None, 'The vocabulary file to make.')
  flags.DEFINE_integer('size', 30522, 'Entries, special tokens included.')
  flags.DEFINE_bool('cased', False, 'Keep case and accents.')
  flags.DEFINE_enum(
    'layout',
    'paragraphs',
    list(sources.LAYOUTS),
    'Of plain text, see bert_jax.data.prepare.',
  )
  flags.mark_flags_as_required(['input', 'output'])


def main(argv):
  """Runs the command."""
  del argv
  f = flags.FLAGS
  print(make(f.input, f.layout, f.size, not f.cased, f.output))


def make(
  inputs: Sequence[str], layout: str, size: int, lowercase: bool, output: str
) -> str:
  """Trains a vocabulary, writes it, and says how well it suits held-out text.

  Args:
    inputs: see `sources.documents`.
    layout: see `sources.documents`.
    size: entries, special tokens included.
    lowercase: whether words are lower-cased and stripped of accents.
    output: the file to write.

  Returns:
    The report, for people.
  """
  if size <= len(tokenizer.SPECIAL):
    raise errors.UserError(
      f'size={size} leaves no room beside {len(tokenizer.SPECIAL)} special '
      'tokens; the paper uses 30522.'
    )
  sample: list[str] = []
  texts = _hold_out(sources.documents(inputs, layout), sample)
  write(train(texts, size, lowercase), output)
  report = f'{output}: {size:,} pieces'
  if sample:
    report += '\n' + _describe(output, lowercase, sample)
  return report


def _hold_out(documents, sample: list[str]):
  """Yields paragraphs, but puts every hundredth into the sample."""
  chars = n = 0
  for document in documents:
    for paragraph in document.paragraphs:
      n += 1
      if n % _SAMPLE_EVERY == 0 and chars < _SAMPLE_CHARS:
        sample.append(paragraph)
        chars += len(paragraph)
      else:
        yield paragraph


def _describe(path: str, lowercase: bool, sample: list[str]) -> str:
  """Says how well the vocabulary suits text that it was not trained on."""
  wordpiece = tokenizer.Tokenizer.load(path, lowercase)
  ids = [i for line in wordpiece.ids(sample) for i in line]
  words = count_words(sample, lowercase).total()
  return (
    f'held-out text of {words:,} words: {len(ids) / max(words, 1):.3f} tokens '
    f'per word, {ids.count(wordpiece.unk_id) / max(len(ids), 1):.3%} unknown'
  )


if __name__ == '__main__':
  _define_flags()
  command.run(main)
