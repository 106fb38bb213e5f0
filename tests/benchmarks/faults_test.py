"""The rows of the fault matrix, and a sample of what they find."""

import random
import re

import faults
import pytest
import small_run

from tests.docs_test import PAGES, ROOT


def test_each_row_of_the_page_is_measured_or_names_what_checks_it():
  lines = PAGES[ROOT / 'docs/faults.md'].splitlines()
  rows = [x.strip('| ').split(' | ') for x in lines if x.count(' | ') == 3]
  page = {name: cells for name, *cells in rows if name != 'row'}
  assert set(faults.ROWS) <= set(page)
  for name in set(page) - set(faults.ROWS):
    *_, measured = page[name]
    paths = re.findall(r'^`(.*?)`', measured)
    assert all((ROOT / x).exists() for x in paths), name
    assert paths or measured.startswith('at a71d0fb: '), name


@pytest.mark.parametrize('moment', small_run.MOMENTS)
def test_the_function_of_each_moment_exists(monkeypatch, moment):
  module, name = small_run.MOMENTS[moment]
  monkeypatch.setattr(f'bert_jax.{module}.{name}', 'before')
  found = []
  small_run.replace(moment, found.append)
  assert found == ['before']


@pytest.mark.parametrize('kind', faults.KINDS)
def test_each_kind_of_damage_changes_a_file(tmp_path, kind):
  path = tmp_path / 'a'
  path.write_text('{"' + 'x' * 300 + '": 1}')
  (tmp_path / 'b').write_bytes(b'other')
  before = path.read_bytes()
  faults.damage(path, kind, random.Random(1))
  assert not path.is_file() or path.read_bytes() != before


def test_no_damaged_checkpoint_is_silently_wrong(tmp_path):
  text = faults.damage_checkpoints(None, str(tmp_path), count=20, seed=3)
  assert text.startswith('20: ') and 'set aside' in text
