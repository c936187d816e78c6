# NVIDIA's perf_analyzer, for load runs on machines whose glibc is older than the 2.38 that it needs.
#   docker build -f docker/perf-analyzer.Dockerfile -t text-pipeline-perf-analyzer:2.60.0 docker

FROM debian:trixie-slim AS base
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libssl3t64 libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/*

FROM base AS wheel
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip \
    && rm -rf /var/lib/apt/lists/*
# The version is also in pyproject.toml, for machines that run it without a container.
RUN pip install --no-cache-dir --no-deps --target /wheel perf-analyzer==2.60.0

FROM base
# The program itself: the wheel's Python starter drops its exit code.
COPY --from=wheel --chmod=755 /wheel/perf_analyzer/bin/perf_analyzer /usr/local/bin/
ENTRYPOINT ["perf_analyzer"]
LABEL org.opencontainers.image.title="text-pipeline" \
      org.opencontainers.image.description="perf_analyzer for the load runs of text-pipeline" \
      org.opencontainers.image.version="2.60.0"
