# The two commands of the README. PYTHON picks the interpreter that makes the environment.
PYTHON ?= python3
VENV := .venv
# What an installation is made of, beside the Python that it reads in place.
BUILT_OF := pyproject.toml $(wildcard workers/native/*.[ch])

.PHONY: serve test check

serve: $(VENV)/serve.stamp
	@exec $(VENV)/bin/fovea serve

test: $(VENV)/test.stamp
	@$(VENV)/bin/python -m pytest

check: $(VENV)/test.stamp
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ops/check

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/serve.stamp: $(BUILT_OF) | $(VENV)/bin/python
	@echo "Installing into $(VENV): about 6 GB, which takes some minutes"
	$(VENV)/bin/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/test.stamp: $(BUILT_OF) | $(VENV)/bin/python
	@echo "Installing into $(VENV), tools for tests included: about 6 GB, which takes some minutes"
	$(VENV)/bin/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/serve.stamp
