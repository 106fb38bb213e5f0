#!/usr/bin/env bash
# Formatting, lint, import layers, lines and tests; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
ruff format --check .
ruff check .
lint-imports --no-cache
python scripts/count_lines.py
pytest "$@"
