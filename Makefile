# livejoin. Needs Python 3.11, make, Java 17 and network access for packages:
#   make demo     a live view over real data          make test     everything that CI checks
#   make kafka    one Kafka broker in the foreground (KAFKA_PORT, KAFKA_DATA)
#   make setup    installs what the others need; fast when nothing has changed
#   make docs     the documentation as a site, in build/docs
#   make wheels   the two distributions, in dist
#   make check    lint, types and the quick tests, in two minutes
#   make lint     make bench     make soak     make lock     make client     make sbom     make audit

PYTHON ?= python3
BIN := .venv/bin
DONE := .venv/.done

# Without bytecode files, each of the hundred services that the tests start would compile our sources again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup python stream java browser oldest-spark lint check test demo kafka bench soak docs pictures lock client wheels sbom audit
.DELETE_ON_ERROR:

setup: $(DONE)/packages $(DONE)/jars $(DONE)/kernels

python:
	@command -v $(PYTHON) >/dev/null || { echo "livejoin needs Python 3.11 or newer: no $(PYTHON) in PATH (make PYTHON=/path/to/python3 …)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("livejoin needs Python 3.11 or newer: $(PYTHON) is %d.%d (make PYTHON=/path/to/python3 …)" % v[:2])'

# The service comes first, by the lock of its image, which is a part of the whole one: the demo waits for nothing else.
INSTALL = $(BIN)/python -m pip install --no-compile --require-hashes --no-deps
$(DONE)/service: deploy/docker/service.lock deploy/docker/build.lock | python
	$(PYTHON) -m venv .venv
	$(INSTALL) -r deploy/docker/service.lock -r deploy/docker/build.lock
	@mkdir -p $(DONE) && touch $@

$(DONE)/project: $(DONE)/service pyproject.toml client/pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable client --editable .
	@touch $@

$(DONE)/stream: $(DONE)/project deploy/docker/stream.lock
	$(INSTALL) -r deploy/docker/stream.lock
	@touch $@

$(DONE)/packages: $(DONE)/project requirements.lock
	$(INSTALL) -r requirements.lock
	@touch $@

# Only the Kafka parts need Java: without it, the setup prints a warning and continues.
$(DONE)/jars: $(DONE)/stream streaming/jars.lock
	@if $(BIN)/python -m streaming.jars; then touch $@; else echo "livejoin: continuing without Kafka and Spark; everything else works" >&2; fi

$(DONE)/kernels: $(DONE)/project $(shell find structures -name '*.py')
	@$(BIN)/python -m service.warming
	@touch $@

# What Kafka and Spark need.
stream: $(DONE)/jars

java: $(DONE)/project
	@$(BIN)/python -m streaming.java

# The client's half without asyncio, after an edit of the other.
client:
	$(PYTHON) client/generate.py

# The same bytes from the same sources.
wheels: $(DONE)/project
	@mkdir -p dist && rm -f dist/*.whl
	@$(BIN)/python -m deploy.checks.wheels dist

# For the tests of the dashboard.
browser: $(DONE)/packages
	@$(BIN)/python -m tests.dashboard.chromium

# For the tests of Spark's data source, which run on two versions of PySpark.
oldest-spark: $(DONE)/packages
	@$(BIN)/python -m tests.streaming.datasource.oldest_spark

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Of the service, the rooms below the engine and those of its readers.
CHECKED = test_messages.py structures $(addprefix service/,access checking durability following planning query reading tables wire)
SLOW = $(addprefix --ignore=tests/structures/,test_modes.py core/test_kernel_cache.py)
check: lint
	$(BIN)/pytest -n 2 --dist loadfile $(addprefix tests/,$(CHECKED)) $(SLOW) $(ARGS)

# Each of the test processes would compile all tests.
$(DONE)/tests: $(DONE)/packages
	@$(BIN)/pytest --collect-only -qq tests/service >/dev/null & $(BIN)/pytest --collect-only -qq --ignore tests/service >/dev/null; wait
	@touch $@

test: setup java browser oldest-spark $(DONE)/tests
	$(BIN)/pytest -n 7 --dist loadfile $(ARGS)

# The service compiles what the demo needs, and the rest meanwhile; what Kafka and Spark need is installed beside it.
PREPARE = $(MAKE) --no-print-directory stream
demo: $(DONE)/project
	@$(BIN)/livejoin demo --prepare "$(PREPARE)" $(ARGS)

kafka: $(DONE)/jars java
	@$(BIN)/python -m streaming.kafka_broker

bench: setup
	@$(BIN)/livejoin bench $(ARGS)

soak: setup java browser oldest-spark
	$(BIN)/pytest -m soak $(ARGS)

# Those of README.md, of the demo as it runs: look at them before you commit them.
pictures: $(DONE)/jars browser
	$(BIN)/python -m tests.pictures

docs: $(DONE)/packages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# Updates the lock files to the newest versions that pyproject.toml allows; those of the images have a part of the first. They name no registry.
COMPILE = $(BIN)/uv pip compile --universal --generate-hashes --no-header --python-version 3.11 --no-emit-package livejoin-client
UNUSED_BY_STREAM = duckdb highspy llvmlite numba
PART = $(COMPILE) --constraint requirements.lock
lock: $(DONE)/packages
	$(COMPILE) --upgrade --all-extras --group dev pyproject.toml -o requirements.lock
	$(PART) --upgrade pyproject.toml -o deploy/docker/service.lock
	$(PART) --upgrade --extra kafka $(addprefix --no-emit-package ,$(UNUSED_BY_STREAM)) pyproject.toml -o deploy/docker/stream.lock
	echo setuptools | $(PART) --upgrade - -o deploy/docker/build.lock

# What the project consists of, as CycloneDX. The tools of these two are not in the lock: uv fetches them.
sbom: $(DONE)/packages
	@mkdir -p build
	$(BIN)/uv tool run --from 'cyclonedx-bom>=7,<8' cyclonedx-py requirements requirements.lock --output-format JSON --output-file build/sbom.json

# Are there known vulnerabilities in the packages? A package that the database does not know is a failure too.
audit: $(DONE)/packages
	$(BIN)/uv tool run --from 'pip-audit>=2.9,<3' pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict
