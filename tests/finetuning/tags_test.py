"""Tests of tagging, in whole runs of a tiny model."""

import functools

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.finetuning import encode, metrics, tags, training
from bert_jax.finetuning.readers import conll
from tests import bpe, models
from tests.finetuning import made


def write_words(folder):
  """Writes sentences in which cats are persons; a dog and an e, a group."""
  folder.mkdir()
  sentences = [
    (['the'] * (i % 4) + ['cats', 'the', 'dog', 'e'] * (1 + i % 3))
    for i in range(24)
  ]
  tag_of = {'the': 'O', 'cats': 'B-PER', 'dog': 'B-ORG', 'e': 'I-ORG'}
  blocks = [
    ''.join(f'{word}\t{tag_of[word]}\n' for word in words)
    for words in sentences
  ]
  (folder / 'train.conll').write_text('\n'.join(blocks))
  # Documents of three sentences.
  dev = ['\n'.join(blocks[i : i + 3]) for i in (0, 3)]
  (folder / 'dev.conll').write_text('\n\n'.join(dev))
  (folder / 'test.txt').write_text('the\ndog\ne\n\ncats\n')
  return str(folder)


def make_config(root, **changes):
  fields = {'finetuning.epochs': 24.0, **changes}
  c = made.configure(root, write_words(root / 'words'), **fields)
  c.task, c.data.text, c.data.label = 'tagging', '', ''
  return c


def make_batches(tmp_path):
  return made.make_task(make_config(tmp_path), tmp_path)


def test_held_out_words_are_collected_once_each(tmp_path):
  batches, phase, _, data = make_batches(tmp_path)
  kept, split = None, data.splits['dev']
  for i in range(batches.eval_batches(phase)):
    batch = batches.eval_batch(phase, i)
    right = {'tags': batch['labels']}
    kept = batches.collect(kept, phase, i, right)
  np.testing.assert_array_equal(kept['chosen'], split.labels)
  assert tags.TASK.compare((), data.labels, split, kept)['metrics']['f1'] == 1
  wrong = {'chosen': np.zeros_like(split.labels)}
  nothing = metrics.score_sums(np.zeros((1, 3), int), tags.divide)
  assert tags.TASK.compare((), data.labels, split, wrong)['metrics'] == nothing


def retag(tmp_path, tags_by_old):
  """Returns data whose tags are others, {old: new}."""
  c = make_config(tmp_path)
  for name in ('train', 'dev'):
    path = tmp_path / 'words' / f'{name}.conll'
    text = path.read_text()
    for old, new in tags_by_old.items():
      text = text.replace(f'\t{old}\n', f'\t{new}\n')
    path.write_text(text)
  return training.read(tags.TASK, c, models.TOKENIZER)


def test_parts_of_speech_are_scored_word_by_word(tmp_path):
  plain = {'B-PER': 'NN', 'B-ORG': 'NN', 'I-ORG': 'RB', 'O': 'DT'}
  data = retag(tmp_path, plain)
  dev, names = data.splits['dev'], tags.TASK.list_metrics(data.labels)
  assert data.labels == ('DT', 'NN', 'RB')
  assert names == ('accuracy', 'macro_f1')
  # All RB are called NN.
  chosen = {'chosen': np.where(dev.labels == 2, 1, dev.labels)}
  parts = names, data.labels, dev, chosen
  found = tags.TASK.compare(*parts, data.splits['train'])
  assert tags.TASK.compare(*parts)['metrics'] == found['metrics']
  right = {'accuracy': 1 - np.mean(dev.labels == 2)}
  assert right.items() <= found['metrics'].items()
  assert found['baseline']['accuracy'] == np.mean(dev.labels == 1)
  assert found['classes']['RB']['recall'] == 0
  assert tags.TASK.find_problem(found, chosen) is None
  [line, *_] = data.manifest['read']
  assert '3 plain tags' in line and 'entities' not in line
  tags.TASK.write_split(str(tmp_path), 'dev', data.labels, dev, chosen)
  assert made.read_lines(tmp_path, 'dev.conll')[3] == 'e\tRB\tNN'


def test_entities_of_another_scheme_are_learnt_and_scored(tmp_path):
  data = retag(tmp_path, {'I-ORG': 'E-ORG', 'B-PER': 'S-PER'})
  assert data.labels == ('O', 'B-ORG', 'I-ORG', 'B-PER', 'I-PER')
  names, dev = tags.TASK.list_metrics(data.labels), data.splits['dev']
  chosen = {'chosen': np.where(dev.labels == 3, 0, dev.labels)}  # no person
  parts = dev, chosen, data.splits['train']
  found = tags.TASK.compare(names, data.labels, *parts)
  assert found['kinds']['ORG']['f1'] == 1 and found['kinds']['PER']['f1'] == 0
  assert found['macro_f1'] == 0.5
  # Labels of a model that was trained elsewhere.
  labels = 'O', 'B-ORG', 'E-ORG', 'S-PER', 'E-PER'
  assert tags.TASK.compare(names, labels, *parts) == found


def test_a_tag_that_no_training_word_has_is_refused(tmp_path):
  c = make_config(tmp_path)
  (tmp_path / 'words' / 'dev.conll').write_text('cat O\n\nthe O\ndog B-LOC\n')
  with pytest.raises(errors.UserError, match="dev.conll: line 4 .* 'B-LOC'"):
    training.read(tags.TASK, c, models.TOKENIZER)


def test_a_column_by_name_is_refused_not_a_missing_dev_file(tmp_path):
  c = make_config(tmp_path)
  c.data.label = 'ner'
  with pytest.raises(errors.UserError, match="data.label='ner' is not the num"):
    training.read(tags.TASK, c, models.TOKENIZER)
  c.data.label = ''
  (tmp_path / 'words' / 'dev.conll').unlink()
  lines = training.read(tags.TASK, c, models.TOKENIZER).manifest['read']
  assert lines[0].startswith('train: 22 sentences, ')
  [dev] = [x for x in lines if x.startswith('dev: 2 sentences, ')]
  assert dev.endswith(f'(held out of {tmp_path}/words/train.conll)')


# [PAD] [UNK] [CLS] [SEP] [MASK] the cat dog ##s
THE, CAT, DOG, S = 5, 6, 7, 8


def encode_documents(length, *documents):
  """Encodes documents, which are lists of sentences."""
  sentences = [
    conll.Sentence(i, 1, text.split(), None)
    for i, document in enumerate(documents)
    for text in document
  ]
  how = encode.How(models.TOKENIZER, length)
  encoded, positions, ends = tags.make_windows(how, sentences)
  rows = np.split(encoded.ids, encoded.ends[:-1])
  found = [x.tolist() for x in np.split(positions, ends[:-1])]
  return [row.tolist()[1:-1] for row in rows], found


@pytest.mark.parametrize(
  'length, documents, rows, positions',
  [
    (16, [['the cats dog']], [[THE, CAT, S, DOG]], [[1, 2, 4]]),
    (
      7,
      [['the the', 'cats', 'dog dog']],
      [[THE, THE, CAT, S, DOG], *[[THE, CAT, S, DOG, DOG]] * 2],
      [[1, 2], [2], [4, 5]],
    ),
    # Context ends where the document does.
    (9, [['the'], ['cat', 'dog']], [[THE], *[[CAT, DOG]] * 2], [[1], [1], [2]]),
    # A sentence that is too long gets more rows and loses no word.
    (
      6,
      [['cats the dog cats the']],
      [[CAT, S, THE, DOG], [DOG, CAT, S, THE]],
      [[1, 3, 4], [2, 4]],
    ),
    (5, [['dogssss']], [[DOG, S, S]], [[1]]),
    (5, [['\u200b']], [[1]], [[1]]),  # without pieces: [UNK]
  ],
)
def test_a_word_is_tagged_at_its_first_piece_and_sees_its_neighbours(
  length, documents, rows, positions
):
  assert encode_documents(length, *documents) == (rows, positions)


@pytest.mark.parametrize('length', range(5, 20))
def test_every_word_is_tagged_once_whatever_the_length(length):
  document = ['the cats', 'dogs ' * 7, 'cat', 'the ' * 9]
  words = sum(len(x.split()) for x in document)
  rows, positions = encode_documents(length, document)
  assert sum(map(len, positions)) == words
  assert max(map(len, rows)) <= length - 2
  firsts = [
    row[i - 1] for row, x in zip(rows, positions, strict=True) for i in x
  ]
  pieces = {'the': THE, 'cats': CAT, 'cat': CAT, 'dogs': DOG}
  assert firsts == [pieces[w] for x in document for w in x.split()]


@pytest.mark.parametrize(
  'text, expected',
  [
    ('O O', []),
    ('B-A I-A O B-A', [(0, 2, 'A'), (3, 4, 'A')]),
    ('B-A B-A', [(0, 1, 'A'), (1, 2, 'A')]),
    # conlleval: an I- of another kind, or after O, begins an entity.
    ('I-A I-A I-B', [(0, 2, 'A'), (2, 3, 'B')]),
    ('B-A I-B I-A', [(0, 1, 'A'), (1, 2, 'B'), (2, 3, 'A')]),
    ('', []),
  ],
)
def test_entities_are_those_of_conlleval(text, expected):
  assert sorted(tags.find_entities(text.split())) == expected


def count(truth, predicted):
  return tags.count_entities(
    *([x.split() for x in y] for y in (truth, predicted))
  )


def test_an_entity_counts_if_its_words_and_its_kind_are_right():
  counts = count(
    ['B-A I-A O B-B', 'B-A O O O'], ['B-A I-A O B-A', 'B-A I-A O O']
  )
  # Found, predicted, there; of each sentence.
  assert counts['A'].tolist() == [[1, 2, 1], [0, 1, 1]]
  assert counts['B'].tolist() == [[0, 0, 1], [0, 0, 0]]
  found = metrics.score_sums(sum(counts.values()), tags.divide)
  assert found == {
    'f1': pytest.approx(2 / 6),
    'precision': pytest.approx(1 / 3),
    'recall': pytest.approx(1 / 3),
  }


def test_words_after_the_first_keep_the_space_that_the_library_sees():
  words = bpe.load()
  lines = ['the cat', 'sat on']
  sentences = [conll.Sentence(1, 1, x.split(), None) for x in lines]
  encoded, *_ = tags.make_windows(encode.How(words, 32), sentences)
  row = encoded.ids[: encoded.ends[0]].tolist()
  assert row == words.encode(' '.join(lines))['input_ids']


def test_ten_entities_are_never_certain():
  # Wilson's interval of 10 of 10 begins at 0.722.
  right = np.tile([1, 1, 1], (10, 1))
  compare = functools.partial(metrics.compare_sums, divide=tags.divide)
  nothing = right * 0
  for low, high in compare(right, nothing)['intervals'].values():
    assert (low, high) == pytest.approx((0.72246, 1), abs=1e-5)
  found = compare(right * [0, 0, 1], nothing)['intervals']
  for name, interval in found.items():
    assert interval == pytest.approx([0, 0.27754], abs=1e-5), name
