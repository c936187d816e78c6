# Stands in for nvcr.io/nvidia/tritonserver where that cannot be pulled or run: the same places, the
# same entry point, the same kind of Python; without a GPU and with the wheel's server.
FROM text-pipeline:cpu AS cpu
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libpython3.11 python3 python3-pip \
    && rm -rf /var/lib/apt/lists/*
# What Triton's image has for its backends: numpy; and ONNX Runtime, there inside the C++ backend.
RUN --mount=type=bind,source=requirements.lock,target=/requirements.lock \
    python3 -m pip install --no-cache-dir --break-system-packages --constraint /requirements.lock \
        numpy onnxruntime
COPY --from=cpu /opt/tritonserver /opt/tritonserver
RUN mkdir /opt/nvidia \
    && printf '#!/bin/bash\necho "NVIDIA banner"\nexec "$@"\n' > /opt/nvidia/nvidia_entrypoint.sh \
    && chmod +x /opt/nvidia/nvidia_entrypoint.sh
