"""Prepares training data: vocabulary, tokens, sentence pairs, manifest.

Documents are read, cleaned and distributed over logical shards by the hash of
their text; then each shard is written as tokens and pairs. The output is the same, byte
for byte, for any number of workers and any runner. After an interruption, run
the same command again to continue.

  python -m bert_jax.data.prepare --input='books/*.txt' --layout=files \\
    --vocab=vocab.txt --output=/data/books --max_seq_length=128,512

With --runner=beam, Beam's own options come after two dashes:

  python -m bert_jax.data.prepare ... --runner=beam -- \\
    --runner=FlinkRunner --flink_master=HOST:8081
"""

import functools

from absl import flags

from bert_jax import errors
from bert_jax.config import arguments, declare_fields
from bert_jax.data import dataset, manifest_file, prepare
from bert_jax.data.recipe import Recipe, make_recipe
from bert_jax.runtime import cli, storage
from bert_jax.tokenization import tokenizer

_SAME_NAMES = (
  'input weights size_power vocab layout language field min_chars strip_accents passes '
  'short_seq_prob pack negatives heldout shards workers'
)
_FIELDS = {
  **{name: f'data.{name}' for name in _SAME_NAMES.split()},
  'max_seq_length': 'phases.seq_length',
  'seed': 'seed',
}


def _define_flags():
  arguments.define_flags(
    _FIELDS, input=None, vocab=None, max_seq_length=['128']
  )
  flags.DEFINE_string(
    'output', None, 'The directory to create, local or gs://.'
  )
  flags.DEFINE_bool('cased', False, 'The vocabulary is cased.')
  flags.DEFINE_enum('runner', 'local', ['local', 'beam'], 'What runs the jobs.')
  flags.DEFINE_string(
    'verify', None, 'Only check all files of this prepared folder.'
  )


def _recipe() -> Recipe:
  f = flags.FLAGS
  if not (f.input and f.vocab and f.output):
    raise errors.UserError('give --input, --vocab and --output; see --help.')
  c = declare_fields()
  arguments.update_by_flags(c, _FIELDS)
  c.data.vocab = storage.resolve(f.vocab)
  c.data.vocab_size = len(tokenizer.read_vocab(f.vocab))
  c.data.lowercase = not f.cased
  return make_recipe(c)


def main(argv: list[str]):
  """Runs the command."""
  f = flags.FLAGS
  if argv[1:] and f.runner != 'beam':
    raise errors.UserError(
      f'{argv[1]!r} is not a flag; quote globs, and see --help.'
    )
  if f.verify:
    given = [x for x in (*_FIELDS, 'output', 'cased', 'runner') if f[x].present]
    if given:
      raise errors.UserError(
        f'--verify only checks what is there; leave --{given[0]} out.'
      )
    size = dataset.verify(f.verify)
    print(f'{f.verify}: all {size:,} bytes are as they were made')
    return
  if f.runner == 'beam' and f['workers'].present:
    raise errors.UserError(
      '--workers counts local processes; with --runner=beam give the options '
      'of Beam after two dashes, such as -- --direct_num_workers=4.'
    )
  recipe = _recipe()
  runner = prepare.local_runner(f.workers)
  if f.runner == 'beam':
    runner = functools.partial(prepare.run_on_beam, options=argv[1:])
  manifest = prepare.prepare(recipe, f.output, runner)
  for line in manifest_file.describe(manifest):
    print(f'{f.output}: {line}')
  words = manifest_file.load_tokenizer(f.output).vocab
  for line in manifest_file.list_warnings(manifest, words):
    print(line)


if __name__ == '__main__':
  _define_flags()
  cli.run(main, takes_arguments=True)
