PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEER := .venv-peer

.PHONY: help setup score test test-all check format bench peer wheel clean

help:
	@echo "make score     install, then score two data sets on an embedded Ray and print the accuracy against their labels"
	@echo "make test      install, then run the tests (those marked slow excepted)"
	@echo "make test-all  all tests"
	@echo "make check     ruff and mypy"
	@echo "make bench     measure against the public package of the same name, in an environment of its own"
	@echo "make wheel     build the wheel into dist/"

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

score: setup
	rm -rf out/make-score
	$(BIN)/laya score examples/tickets.jsonl --questions tickets --state subject,text --output out/make-score/tickets \
	  --labels department=true_department --labels urgency=true_urgency --labels leaving=true_leaving
	$(BIN)/laya dataset installed-packages --output out/make-score/packages.jsonl
	$(BIN)/laya score out/make-score/packages.jsonl --questions packages --state name,summary,description --output out/make-score/packages \
	  --labels topic=true_topic --labels http=true_http

# Many short forward passes beside other processes: threads that spin while they wait would take the cores from them.
test test-all: export OMP_WAIT_POLICY = PASSIVE

test: setup
	$(BIN)/python -m pytest -m 'not slow'

test-all: setup
	$(BIN)/python -m pytest

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

peer: $(PEER)/.installed

$(PEER)/.installed:
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 laya==0.4.15
	touch $@

bench: setup peer
	$(BIN)/python -m benchmarks.engine --peer $(PEER)/bin/python

wheel: setup
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(PEER) out/make-score dist build
