"""What step.py refuses to compare."""

import pytest
import step


def test_a_comparison_with_nothing_is_refused(monkeypatch, capsys):
  monkeypatch.setattr('sys.argv', ['step.py'])
  with pytest.raises(SystemExit, match='2'):
    step.parse_arguments()
  assert 'nothing to compare with; give --torch=' in capsys.readouterr().err
  for alone in ('--torch=python', '--size=tiny'):
    monkeypatch.setattr('sys.argv', ['step.py', alone])
    step.parse_arguments()
