"""The paper's tables, trained and tested by one command."""
