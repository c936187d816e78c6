# make serve: a Triton server with the default model on this machine's CPUs
# make test:  every test, against a server of its own
# make load: throughput and latency of the default model under load, with a report in load/runs/
# make test-container: the integration suite and more against the CPU image; needs a Docker engine
# make test-gpu: what the manual says of GPUs, checked on this machine's, with a report in load/runs/

VENV := .venv
BIN := $(VENV)/bin
REPOSITORY ?= model_repository
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
METRICS_PORT ?= 8002
PORTS := --http-port $(HTTP_PORT) --grpc-port $(GRPC_PORT) --metrics-port $(METRICS_PORT)
# requirements.lock pins what pyproject.toml names, and everything those need.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.lock
DEFAULT_MODEL := model_repository/text_classifier_onnx/1/model.onnx

.PHONY: serve load test test-container test-gpu lint model clean

# The ports come first: a taken one is worth knowing before minutes of installing.
serve:
	@python3 -m text_pipeline.server.ports $(PORTS)
	@$(MAKE) --no-print-directory --silent model
	@$(BIN)/text-pipeline serve --repository $(REPOSITORY) $(PORTS)

load: $(VENV)/.test model
	$(BIN)/python -m load sweep

test: $(VENV)/.test model
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile tests/unit tests/models
	$(BIN)/pytest --ignore tests/unit --ignore tests/models

test-container: $(VENV)/.test model
	$(BIN)/pytest --server container tests/integration tests/container

test-gpu: $(VENV)/.test
	$(BIN)/python -m load gpu

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/shellcheck scripts/create-venv scripts/get-prometheus .ci/run .ci/with-engine
	$(BIN)/hadolint docker/*Dockerfile tests/container/triton-stand-in.Dockerfile

model: $(DEFAULT_MODEL)

$(DEFAULT_MODEL): | $(VENV)/.serve
	@$(BIN)/text-pipeline export --model default --version 1 --repository model_repository

$(VENV)/.serve: pyproject.toml requirements.lock scripts/create-venv
	@scripts/create-venv $(VENV)
	@echo "Installing the server and the exporter (PyTorch is most of it)"
	@$(INSTALL) --editable '.[server,export,evaluate]'
	@touch $@

$(VENV)/.test: $(VENV)/.serve scripts/get-prometheus
	@scripts/get-prometheus $(BIN)
	@$(INSTALL) --editable '.[dev,load]'
	@$(INSTALL) --editable '.[perf-analyzer]' 2>/dev/null || \
		echo "perf_analyzer needs glibc 2.38: load runs take it from a container"
	@touch $@

clean:
	rm -rf $(VENV) model_repository/text_classifier_onnx/[0-9]* model_repository/text_classifier_onnx/labels.txt \
		model_repository/text_tokenizer/*/tokenizer
