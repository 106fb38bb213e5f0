"""`DATA_CARD.md`: the manifest in readable form."""

from bert_jax.runtime import cards

_COUNTS = 'rows pairs padding_share padding_share_unpacked random_share'.split()
_FACTS = 'version vocab_sha256 accents sentences tokens unigram_entropy'.split()


def make_card(manifest: dict) -> str:
  """Returns the data card as Markdown."""
  lengths = [
    (length, *(row[x] for x in _COUNTS))
    for length, row in manifest['lengths'].items()
  ]
  sections = {
    'Text': describe_text(manifest),
    'Cleaned': cards.list_facts(manifest['cleaned']),
    'Rows': cards.make_table(('tokens', *_COUNTS), lengths),
    'Recipe': cards.list_fields(manifest['recipe']),
  }
  return cards.make_card('Sentence pairs for BERT', sections)


def describe_text(manifest: dict) -> str:
  """Returns what the data were made of: tables of inputs and of facts."""
  head = 'input', 'weight', 'files', 'documents', 'bytes of text'
  rows = [
    (
      f'`{cards.name_paths(x["input"])}`',
      round(x.get('weight', 1.0), 3),  # older data may have none
      *(len(x['files']), x['documents'], x['text_bytes']),
      *(x['train']['tokens'], x['heldout']['tokens'], x['heldout']['parts']),
    )
    for x in manifest['inputs']
  ]
  head += 'training tokens', 'tokens held out', 'parts held out'
  facts = {name: manifest[name] for name in _FACTS}
  facts['unknown_share'] = f'{manifest["unknown_share"]:.2%}'
  for name, where in (('train', 'to train on'), ('heldout', 'held out')):
    facts[f'documents, or parts, {where}'] = manifest['documents'][name]
  return f'{cards.make_table(head, rows)}\n\n{cards.list_facts(facts)}'
