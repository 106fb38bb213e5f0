"""`DATA_CARD.md`: the manifest in readable form."""

from collections.abc import Sequence

from bert_jax.runtime import markdown

_CLEANED = {
  'control_characters': 'control characters removed',
  'damaged_files': 'files read up to where they are damaged',
  'duplicate_documents': 'duplicate documents dropped',
  'empty_documents': 'documents without text dropped',
  'invalid_utf8': 'sequences that are not UTF-8, replaced by U+FFFD',
  'long_documents_cut': 'cuts in documents too long for one piece',
  'long_lines_cut': 'cuts in lines of more than a megabyte',
  'long_lines_dropped': 'JSON lines of more than 64 MB dropped',
  'pages_of_other_namespaces': 'pages dropped that are not articles',
  'redirect_pages': 'redirects dropped',
  'short_documents': 'documents dropped that were too short',
  'unreadable_pages': 'pages dropped that hold no wikitext',
}


def make_card(manifest: dict, examples: Sequence[str]) -> str:
  """Returns the data card as Markdown."""
  recipe = manifest['recipe']
  found = manifest['documents']
  parts = [
    '# Data card',
    f'Sentence pairs for BERT, made by bert_jax {manifest["version"]}. '
    '`manifest.json` has every file with its size and SHA-256.',
    '## Text',
    markdown.make_table(
      ('input', 'weight', 'files', 'bytes', 'documents', 'text')
      + ('training tokens', 'tokens held out', 'parts held out'),
      _inputs(manifest),
    ),
    f'{found["train"]:,} documents or parts of long ones to train on and '
    f'{found["heldout"]:,} held out, chosen by the hash of their text. Training '
    f'text: {manifest["sentences"]:,} sentences, {manifest["tokens"]:,} tokens.',
    '## Clean-up',
    _cleaned(manifest['cleaned']),
    '## Vocabulary',
    f'{recipe["vocab_size"]:,} entries, '
    f'{"uncased" if recipe["lowercase"] else "cased"}, accents are '
    f'{manifest["accents"]}; '
    f'{manifest["unknown_share"]:.4%} of the tokens are [UNK]. Unigram entropy '
    f'{manifest["unigram_entropy"]:.3f} nats. SHA-256 '
    f'`{manifest["vocab_sha256"]}`.',
    '## Rows',
    markdown.make_table(
      ('length', 'rows', 'pairs', 'padding', 'padding unpacked', 'random next'),
      [
        (
          length,
          f'{row["rows"]:,}',
          f'{row["pairs"]:,}',
          f'{row["padding_share"]:.1%}',
          f'{row["padding_share_unpacked"]:.1%}',
          f'{row["random_share"]:.1%}',
        )
        for length, row in manifest['lengths'].items()
      ],
    ),
    'Some of them:',
    '\n'.join(f'> {example}\n' for example in examples).rstrip(),
    '## Recipe',
    markdown.make_table(
      ('field', 'value'), [(k, f'`{v!r}`') for k, v in recipe.items()]
    ),
    'The licences and permitted uses of the texts apply.',
  ]
  return '\n\n'.join(parts) + '\n'


def _inputs(manifest):
  weights = manifest['recipe']['weights'] or [1.0] * len(manifest['inputs'])
  return [
    (
      f'`{given["input"]}`',
      f'{weight:g}',
      f'{len(given["files"]):,}',
      f'{sum(f["bytes"] for f in given["files"]):,}',
      f'{given["documents"]:,}',
      f'{given["text_bytes"]:,} bytes',
      f'{given["train"]["tokens"]:,}',
      f'{given["heldout"]["tokens"]:,}',
      f'{given["heldout"]["parts"]:,}',
    )
    for given, weight in zip(manifest['inputs'], weights, strict=True)
  ]


def _cleaned(counts: dict) -> str:
  if not counts:
    return 'Nothing had to be removed.'
  return '\n'.join(
    f'* {_CLEANED.get(name, name.replace("_", " "))}: {count:,}'
    for name, count in counts.items()
  )
