# Everything runs in .venv, which makes itself. PYTHON=python3.12 picks another interpreter.
PYTHON ?= python3
PIP := .venv/bin/pip --disable-pip-version-check
INSTALLED := .venv/.installed
# Dozens of processes import the package: compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check format bench readme clean

demo: $(INSTALLED)
	.venv/bin/frostline demo

# Four processes on two cores: some of them wait, for a server, a killed command or a browser.
test: $(INSTALLED)
	.venv/bin/pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=10

# Also the tests of which `make test` does a sample: every strategy on every family, every family's sweep.
test-all: $(INSTALLED)
	.venv/bin/pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=10 --thorough

check: $(INSTALLED)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/pytest tests/test_structure.py

format: $(INSTALLED)
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

# DATA is a GLUE folder. Nothing else may run meanwhile. A bench that misses a line fails; the page is written all the same.
bench: $(INSTALLED)
	.venv/bin/python -m bench.speed --data $(DATA); speed=$$?; \
	.venv/bin/python -m bench.shapes --data $(DATA); shapes=$$?; \
	.venv/bin/python -m bench.speed_page && \
	.venv/bin/python -m bench.against_trainer --data $(DATA) && \
	exit $$((speed + shapes))

# The README's numbers and pictures, from stored runs of the demo, and of its rows under `tuned`; missing runs are done.
readme: $(INSTALLED)
	test -f runs/demo/plain-loop.json || .venv/bin/frostline demo
	.venv/bin/python -m bench.readme runs/demo runs/demo-tuned

$(INSTALLED): pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet --constraint constraints.txt --editable '.[demo,test,lora,tensorboard,mlflow,ray,serve,setfit]'
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
