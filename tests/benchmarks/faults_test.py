"""The rows of the fault matrix, and a sample of what they find."""

import random
import re

import damage
import faults
import faults_files
import faults_process
import pytest


def test_each_row_of_the_page_is_measured_or_names_what_checks_it():
  page = faults.read_page()
  assert set(faults.list_rows()) <= set(page)
  for name in set(page) - set(faults.list_rows()):
    *_, measured = page[name]
    paths = re.findall(r'^`(.*?)`', measured)
    assert all((faults.ROOT / x).exists() for x in paths), name
    assert paths or measured.startswith('at a71d0fb: '), name


@pytest.mark.parametrize('moment', faults_process.MOMENTS)
def test_the_function_of_each_moment_exists(monkeypatch, moment):
  module, name = faults_process.MOMENTS[moment]
  monkeypatch.setattr(f'bert_jax.{module}.{name}', 'before')
  found = []
  faults_process.replace(moment, found.append)
  assert found == ['before']


def test_what_was_measured_replaces_the_last_cell(monkeypatch, tmp_path):
  page = tmp_path / 'page.md'
  page.write_text('| row | x | y | z |\n|---|---|---|---|\n| a | b | c | d |\n')
  monkeypatch.setattr(faults, 'PAGE', page)
  faults.write_page('a', 'e | f')
  assert faults.read_page() == {'a': ['b', 'c', 'e / f']}


@pytest.mark.parametrize('kind', damage.KINDS)
def test_each_kind_of_damage_changes_a_file(tmp_path, kind):
  path = tmp_path / 'a'
  path.write_bytes(bytes(range(256)) * 2)
  (tmp_path / 'b').write_bytes(b'other')
  before = path.read_bytes()
  damage.KINDS[kind](str(path), random.Random(0))
  assert not path.is_file() or path.read_bytes() != before


def test_no_damaged_checkpoint_is_silently_wrong(tmp_path):
  text = faults_files.checkpoint_files(None, str(tmp_path), count=20, seed=3)
  assert text.startswith('20: ') and 'set aside' in text
