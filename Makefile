# make demo and make test need only Python >= 3.11, pip and venv: they set up .venv on first use,
# and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
# Of 18,000 modules some 5,000 are ever imported: Python compiles those when it needs them first, and keeps them.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
INSTALL := $(PIP) --editable

.PHONY: demo test pytest lint bench tables docs clean

demo: .venv/base
	$(BIN)/heatbath tune --problem spirals --turns 4 --hidden 100 --steps 50000 --batch 20 --candidates 64 \
		--by accuracy --method adlala --method lol --method adam --method momentum --method sgld

test: # both at once: types are checked by one core, and examples are tested by all
	$(MAKE) --no-print-directory --jobs=2 lint pytest

# Each worker has one half of the tests in their order, and takes from the other when it has done: what tests of a
# file share is made once. Hashes are the same every time, as all else is.
pytest: .venv/dev
	OMP_WAIT_POLICY=passive PYTHONHASHSEED=0 $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/bench
	OMP_WAIT_POLICY=passive $(BIN)/python -W ignore benchmarks/engine.py
	$(BIN)/python benchmarks/optimisers.py
	$(BIN)/python benchmarks/chains.py
	$(BIN)/python benchmarks/processes.py
	$(BIN)/python benchmarks/costs.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/rounds.py

tables: .venv/bench
	OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/uci.py --page docs/uci.md
	OMP_WAIT_POLICY=passive $(BIN)/python benchmarks/classification.py --page docs/classification.md
	OMP_WAIT_POLICY=passive $(BIN)/python -W ignore benchmarks/tables.py --page docs/mixed.md
	$(BIN)/python benchmarks/modules.py --page docs/modules.md
	$(BIN)/python benchmarks/reduced_rank.py
	$(BIN)/python benchmarks/llc.py
	$(BIN)/python benchmarks/intervals.py
	$(BIN)/python benchmarks/streams.py
	$(BIN)/python benchmarks/drift.py
	$(BIN)/python benchmarks/deep.py
	$(BIN)/python docs/measured.py

docs: .venv/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade pip # one that comes with Python takes twice as long to install all else

.venv/base: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing heatbath into .venv"
	$(INSTALL) .
	touch $@

.venv/dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing heatbath, the extras and the test tools into .venv (once, a minute or two)"
	$(INSTALL) '.[all,dev,clients,dask,ray]'
	touch .venv/base $@

.venv/bench: .venv/dev
	@echo "installing what the benchmarks compare with into .venv"
	$(INSTALL) '.[all,dev,clients,dask,ray,bench]'
	touch $@

.venv/docs: .venv/base
	@echo "installing what makes the documentation into .venv"
	$(INSTALL) '.[docs]'
	touch $@
