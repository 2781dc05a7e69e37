# Every target starts from a fresh clone: it makes the environments that it needs.
PYTHON ?= python3
# Airflow 2.11 supports Python up to 3.12. Empty if there is none: then `make test` leaves out the tests that need it.
PYTHON_AIRFLOW_2 ?= $(shell for each in $(PYTHON) python3.12 python3.11 python3.10; do \
	$$each -c 'import sys; sys.exit(sys.version_info >= (3, 13))' 2> /dev/null && echo $$each && break; done)
# Not empty: a missing Python for Airflow 2.11 is an error.
REQUIRE_AIRFLOW_2 ?=
AIRFLOW_3 ?= 3.3.2
# The tests start many processes, which take seconds longer each if Python may not keep compiled files.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
VENV_2 := .venv-airflow2
VENV_CELERY := .venv-celery
# What the browser tests need beside the first environment.
UI := .ui
# What some tests of guides need beside the first environment.
GUIDES := .guides
# What the documentation needs beside the first environment, and where it is built.
DOCS := .docs
# What `make mutants` needs, beside the first environment.
MUTANTS := .mutants
# What `make bench` needs beside the first environment.
BENCH := .bench
# What `make matrix` needs, and its logs.
MATRIX := .matrix
# Where the pictures go that the browser tests take; `make pictures` renews those of the docs.
PICTURES ?= $(UI)/pictures
# What `make test` leaves behind: the output of each part, and pytest's reports.
REPORTS := .reports
# $(call pytest,ENVIRONMENT,NAME): options to run a suite with. Most tests wait for something most of the time, so
# three processes are quicker than two also on two cores.
pytest = -m pytest --numprocesses 3 --dist worksteal --junit-xml $(REPORTS)/$@.xml \
	--override-ini "junit_suite_name=$(2), $$($(1)/bin/python --version)"
# $(call summary,ENVIRONMENT): a line about the suite that ran.
summary = $(1)/bin/python tools/summary.py $(REPORTS)/$@.xml
QUIET := -qq --disable-pip-version-check
# $(call new,ENVIRONMENT,PYTHON): a new environment, whose pip knows dependency groups.
new = rm -rf $(1) && $(2) -m venv $(1) && $(1)/bin/python -m pip install $(QUIET) --upgrade 'pip>=25.1'
# $(call install,ENVIRONMENT): pip install in that environment.
install = $(1)/bin/python -m pip install $(QUIET)

.PHONY: help help-all demo demo-ui test python-airflow2 test-airflow3 test-airflow2 test-guides test-ui pictures faults faults-celery lint wheel matrix bench scale mutants model coverage docs clean

help:
	@echo "make demo       run the main job end to end on an embedded Airflow"
	@echo "make demo-ui    start the Airflow UI with the sandbox and the example DAGs"
	@echo "make test       run all tests, as CI does (a quarter of an hour)"
	@echo "make lint       check format, style and types"
	@echo "make docs       build the documentation; open $(DOCS)/html/index.html"
	@echo "make bench      compare speed and memory side by side"
	@echo "make help-all   the parts of 'make test', and what it does not run"

help-all: help
	@echo
	@echo "make test-airflow3  run the tests on Airflow $(AIRFLOW_3)"
	@echo "make test-airflow2  run on Airflow 2.11, with the oldest versions that the package allows, the tests of what"
	@echo "                    their versions make a difference to"
	@echo "make faults         kill and break things while requests are created and events arrive, and count"
	@echo "make wheel          build wheel, sdist and SBOM, and check them in a clean environment"
	@echo
	@echo "not part of 'make test':"
	@echo "make coverage       measure which lines and branches the tests reach (a quarter of an hour)"
	@echo "make mutants        change the code at random places, and see whether a test fails (half an hour)"
	@echo "make model          plan and apply while files change, services drift, responses are lost, tasks are killed"
	@echo "make test-ui        open Airflow and the Custody page in a browser; needs chromium and npm"
	@echo "make pictures       renew the pictures of docs and README, and the record of their texts, in docs/images"
	@echo "make test-guides    sign in SoftHSM2 and in a KMS, make a pod; needs softhsm2"
	@echo "make faults-celery  the faults on Celery; needs redis-server and postgresql"
	@echo "make scale          5,000 rows and 1,000 sensors on Celery; needs redis-server and postgresql"
	@echo "make matrix         try the wheel on each pair of Python and Airflow (an hour)"
	@echo "make clean          remove what the other targets made"

demo: $(VENV)/.ready
	@$(VENV)/bin/python demo/run.py

demo-ui: $(VENV)/.ready
	@$(VENV)/bin/python demo/ui.py

# The suite on Airflow 2.11, unless there is no Python for it.
SUITE_2 = $(if $(PYTHON_AIRFLOW_2),test-airflow2)
NO_PYTHON = Airflow 2.11 needs Python 3.10, 3.11 or 3.12: install one, or set PYTHON_AIRFLOW_2
check_python_2 = $(if $(PYTHON_AIRFLOW_2),,echo "$(NO_PYTHON)"; exit 1)

test: $(if $(REQUIRE_AIRFLOW_2),python-airflow2)
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.ready $(DOCS)/.ready $(if $(SUITE_2),$(VENV_2)/.ready)
	@echo "--- all tests (a quarter of an hour); their output is in $(REPORTS)"
	@$(VENV)/bin/python tools/at_once.py "lint test-airflow3" "wheel docs faults $(SUITE_2)"
	@$(if $(SUITE_2),,echo "NOT RUN: test-airflow2. $(NO_PYTHON)")
	@$(VENV)/bin/python tools/summary.py --total $(patsubst %,$(REPORTS)/%.xml,test-airflow3 $(SUITE_2))

python-airflow2:
	@$(check_python_2)

lint: $(VENV)/.ready
	@echo "--- ruff, mypy"
	@$(VENV)/bin/ruff format --check --quiet . || (echo "ruff format would change files: run $(VENV)/bin/ruff format"; exit 1)
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/mypy --no-error-summary

test-airflow3: $(VENV)/.ready
	@echo "--- tests on Airflow $(AIRFLOW_3)"
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python $(call pytest,$(VENV),Airflow $(AIRFLOW_3))
	@$(call summary,$(VENV))

# Measuring doubles the processor time of the tests, so `make test` does without.
coverage: $(VENV)/.ready
	@echo "--- coverage by the tests on Airflow $(AIRFLOW_3) (a quarter of an hour)"
	@mkdir -p $(REPORTS)
	@$(VENV)/bin/coverage erase
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/coverage run $(call pytest,$(VENV),Airflow $(AIRFLOW_3))
	@$(VENV)/bin/coverage combine --quiet
	@$(VENV)/bin/coverage report

# What differs by the versions of Airflow and of the libraries that are used: HTTP, settings, files, rows, keys, text for
# people, the sandbox. The rest knows none. The example in CONTRIBUTING.md is followed on Airflow 3 only.
TESTS_2 := tests/operators tests/sensors tests/triggers tests/task_groups tests/hooks tests/idempotency \
	tests/e2e --ignore=tests/e2e/test_contributing.py \
	$(wildcard tests/client/test_*.py) tests/client/whitelist/files tests/client/whitelist/test_models.py \
	$(addprefix tests/client/verification/test_, public_keys.py verifier.py) \
	$(addprefix tests/cli/test_, airflow.py check.py connection.py examples.py output.py whitelist.py) \
	$(addprefix tests/plugin/test_, links.py plugin.py) tests/sandbox/test_sandbox_server.py \
	$(addprefix tests/test_, assets.py failure_logs.py given.py mapped_rows.py metrics.py rendered_fields.py retry_policy.py signers.py)

test-airflow2: $(VENV_2)/.ready
	@echo "--- tests on Airflow 2.11, with the lower bounds of pyproject.toml"
	@$(VENV_2)/bin/python tools/lowest.py --check
	@PATH="$(CURDIR)/$(VENV_2)/bin:$$PATH" $(VENV_2)/bin/python $(call pytest,$(VENV_2),Airflow 2.11 and lower bounds) $(TESTS_2)
	@$(call summary,$(VENV_2))

test-ui: $(VENV)/.ready $(UI)/.ready
	@echo "--- Airflow and the Custody page in Chromium (five minutes)"
	@PICTURES="$(PICTURES)" AXE_CORE="$(UI)/node_modules/axe-core/axe.min.js" \
		$(VENV)/bin/python -m pytest tests/ui
	@echo "pictures: $(PICTURES)"

pictures: $(VENV)/.ready $(UI)/.ready
	@echo "--- pictures of docs and README (three minutes)"
	@PICTURES=docs/images $(VENV)/bin/python -m pytest -m picture tests/ui
	@ls docs/images/*.png docs/images/words.json

# The same tests run in `make test-airflow3`, which skips what is not installed; here that is a failure.
test-guides: $(VENV)/.ready $(GUIDES)/.ready
	@echo "--- signing in SoftHSM2 and in a KMS, and a pod of Kubernetes"
	@CUSTODY_TEST_GUIDES=1 $(VENV)/bin/python -m pytest tests/client/test_pkcs11_signer.py \
		tests/client/test_kms_signer.py tests/test_signing_guides.py tests/e2e/test_executors.py

faults: $(VENV)/.ready
	@echo "--- faults on Airflow $(AIRFLOW_3), LocalExecutor (two minutes)"
	@$(VENV)/bin/python tests/faults/requests_run.py
	@echo "--- faults while the service writes webhook calls (two minutes)"
	@$(VENV)/bin/python tests/faults/events_run.py

faults-celery: $(VENV_CELERY)/.ready
	@echo "--- faults on Airflow $(AIRFLOW_3), Celery (three minutes)"
	@$(VENV_CELERY)/bin/python tests/faults/requests_run.py --celery

scale: $(VENV_CELERY)/.ready
	@echo "--- 5,000 rows and 1,000 sensors on Airflow $(AIRFLOW_3), Celery (at most six minutes)"
	@$(VENV_CELERY)/bin/python tests/scale/run_scale.py

wheel: $(VENV)/.ready
	@echo "--- wheel in a clean environment"
	@$(VENV)/bin/python tools/check_wheel.py $(AIRFLOW_3)

# PYTHONS=/path/to/python3.14:... names interpreters that are not on the PATH.
matrix: $(VENV)/.ready $(MATRIX)/.ready
	@$(VENV)/bin/python tools/matrix.py

bench: $(VENV)/.ready $(BENCH)/.ready
	@$(VENV)/bin/python benchmarks/bench.py

# Which change of the code no test would notice: SAMPLE and SEED choose the changes, 100 and 1 unless given.
mutants: $(VENV)/.ready $(MUTANTS)/.ready
	@$(MUTANTS)/bin/python tests/mutants/run.py

# SEQUENCES and SEED choose what happens, 100 and 1 unless given.
model: $(VENV)/.ready
	@MODEL_SEQUENCES=$${SEQUENCES:-100} $(VENV)/bin/python -m pytest -q --hypothesis-seed=$${SEED:-1} \
		tests/idempotency/test_model.py

docs: $(VENV)/.ready $(DOCS)/.ready
	@echo "--- documentation"
	@rm -rf $(DOCS)/html $(DOCS)/doctrees
	@$(VENV)/bin/python -m sphinx -b html --nitpicky --fail-on-warning --keep-going --quiet \
		--doctree-dir $(DOCS)/doctrees docs $(DOCS)/html
	@echo "documentation: $(DOCS)/html/index.html"

$(VENV)/.ready: pyproject.toml
	@echo "--- installing Airflow $(AIRFLOW_3) into $(VENV) (a minute or two)"
	@$(call new,$(VENV),$(PYTHON))
	@$(call install,$(VENV)) "apache-airflow==$(AIRFLOW_3)" apache-airflow-providers-standard \
		apache-airflow-providers-http apache-airflow-providers-slack apache-airflow-providers-smtp \
		-e '.[sandbox]' --group test --group lint
	@touch $@

# With universal-pathlib 0.3, Airflow 2.11.0 opens no file in an object storage; its constraints file has 0.2.
$(VENV_2)/.ready: pyproject.toml tools/lowest.py
	@$(check_python_2)
	@echo "--- installing the lower bounds of pyproject.toml into $(VENV_2) (a minute or two)"
	@$(call new,$(VENV_2),$(PYTHON_AIRFLOW_2))
	@$(call install,$(VENV_2)) packaging tomli
	@$(VENV_2)/bin/python tools/lowest.py > $(VENV_2)/lowest.txt
	@$(call install,$(VENV_2)) --requirement $(VENV_2)/lowest.txt --group test 'universal-pathlib<0.3'
	@touch $@

# Celery 5.7 lacks what the Celery provider imports.
$(VENV_CELERY)/.ready: pyproject.toml
	@echo "--- installing Airflow $(AIRFLOW_3) with Celery into $(VENV_CELERY) (a minute or two)"
	@$(call new,$(VENV_CELERY),$(PYTHON))
	@$(call install,$(VENV_CELERY)) "apache-airflow[celery,postgres]==$(AIRFLOW_3)" "celery<5.7" \
		psycopg2-binary apache-airflow-providers-standard -e '.[sandbox]'
	@touch $@

# What some targets need beside the first environment: the dependency group of their name.
$(BENCH)/.ready $(GUIDES)/.ready $(DOCS)/.ready $(MATRIX)/.ready $(UI)/.ready: $(VENV)/.ready
	@echo "--- installing the dependency group '$(@:.%/.ready=%)'"
	@mkdir -p $(@D)
	@$(call install,$(VENV)) --group $(@:.%/.ready=%)
	@$(if $(filter $(UI)/.ready,$@),npm install --silent --no-audit --no-fund --no-save --prefix $(UI) axe-core@4)
	@touch $@

$(MUTANTS)/.ready: pyproject.toml
	@echo "--- installing cosmic-ray"
	@$(call new,$(MUTANTS),$(PYTHON))
	@$(call install,$(MUTANTS)) --group mutants
	@touch $@

clean:
	rm -rf $(VENV) $(VENV_2) $(VENV_CELERY) $(UI) $(BENCH) $(GUIDES) $(DOCS) $(MATRIX) $(MUTANTS) $(REPORTS) .demo build dist .coverage*
