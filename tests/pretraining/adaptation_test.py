"""What a run changes on held-out text."""

import numpy as np
import pytest

from bert_jax.data import manifest_file
from bert_jax.pretraining import adaptation
from bert_jax.tokenization import tokenizer
from tests import models
from tests.data import made
from tests.inference.pseudo_likelihood_test import certain, make_source


def test_scores_are_those_of_whole_words(monkeypatch, capsys):
  # cat and cat, of 1 bit, dog of 2 and bird of 3, in 3 + 3 + 3 + 4 letters.
  texts = {'domain': ['cat dog', 'bird cat'], 'general': ['dog']}
  found = adaptation.measure(certain(), texts)
  assert found['domain'] == {
    'bits_per_character': pytest.approx(7 / 13),
    'accuracy': 0.5,
    'pieces_per_word': 1,
    'words': 4,
  }
  assert found['general']['bits_per_character'] == pytest.approx(2 / 3)
  worse = {part: {**x, 'accuracy': 0.0} for part, x in found.items()}
  monkeypatch.setattr(adaptation, 'read_texts', lambda *given: texts)
  facts = {'init_from': {'before': worse, 'words': 11}}
  both = adaptation.report(facts, 'DATA', 9, certain())
  assert both == {'before': worse, 'after': found}
  row = '| domain | 0.538 → 0.538 | 0.0% → 50.0% | 1.000 → 1.000 | 4 |\n'
  assert row in capsys.readouterr().out
  assert adaptation.report({}, 'DATA', 9, certain()) == {}


def test_a_word_of_several_wrong_pieces_counts_once(monkeypatch):
  of = np.array([[0, 1, 3], [0, 2, 3], [0, 3, 4]])  # cat ##s, dog
  values = np.array([[-1, 0], [-1, 0], [-1, 1]])
  monkeypatch.setattr(
    adaptation.pseudo_likelihood, 'predict', lambda *given: (of, values)
  )
  model = make_source({}, models.CONFIG, models.TOKENIZER)
  found = adaptation.measure(model, {'domain': ['cats dog']})['domain']
  assert (found['accuracy'], found['pieces_per_word']) == (0.5, 1.5)


def test_texts_are_first_words_of_held_out_rows(tmp_path, monkeypatch):
  monkeypatch.setattr(adaptation, '_LONGEST', 3)
  # the cats dog; the cat cats; e and a word that the source does not know
  rows = [[([5, 6, 8, 7], [9], False)], [([5, 6, 6, 8], [9], False)]]
  rows.append([([10, 11], [9], False)])
  words = [*models.VOCAB, 'cow']
  made.write(tmp_path, 'heldout', 9, [rows], len(words))
  folder = str(tmp_path)
  manifest = manifest_file.read(folder)
  how = {'inputs': ['text'], 'lowercase': True, 'strip_accents': True}
  manifest['recipe'] |= how
  manifest_file.write(folder, manifest)
  tokenizer.write_vocab(words, manifest_file.vocab_path(folder))
  found = adaptation.read_texts(folder, 9, len(models.VOCAB))
  assert found == {'domain': ['the cats', 'the cat']}
