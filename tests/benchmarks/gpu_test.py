"""How the checks of a GPU end that take several calls."""

import gpu
import pytest


@pytest.mark.parametrize(
  'verdict, code', [('FAIL: it differs', 1), ('PASS', 0)]
)
def test_a_failure_of_an_earlier_call_counts(
  monkeypatch, tmp_path, verdict, code
):
  (tmp_path / 'verdicts.txt').write_text(f'runs {verdict}\nruns DONE in 9 s\n')
  monkeypatch.setattr(gpu, 'ask', lambda *_: 'a GPU')
  monkeypatch.setattr(gpu.signal, 'signal', lambda *_: None)
  monkeypatch.setattr(
    'sys.argv', ['gpu', f'--folder={tmp_path}', '--parts=runs']
  )
  assert gpu.main() == code
