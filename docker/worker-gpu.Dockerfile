# A worker on NVIDIA GPUs. The image brings CUDA, jax, optax, orbax, Transformer Engine and MaxText (amd64, and arm64 for Grace);
# this adds only what talks to the queue and the record, in an environment that sees the image's packages.
# This tag moves, and its digest is not known to this repository: pin it in `.env` (docs/operate.md, "Pin the images").
ARG JAX_IMAGE=ghcr.io/nvidia/jax:maxtext
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS uv
ARG UV_VERSION=0.13.8
RUN pip install --no-cache-dir uv==${UV_VERSION}

FROM ${JAX_IMAGE}
WORKDIR /app
COPY --from=uv /usr/local/bin/uv /usr/local/bin/uv
COPY locks/server.lock docker/gpu-image-has.txt ./
# uv makes the environment, because the image's Python may lack ensurepip and pip. numpy and scipy stay the image's own, with which
# its jax was built.
RUN uv venv --no-python-downloads --system-site-packages --python python3 /opt/parity \
    && uv pip install --python /opt/parity/bin/python --no-cache --require-hashes --no-deps --excludes gpu-image-has.txt -r server.lock \
    && useradd --uid 10001 --create-home parity && install -d -o parity /state /checkpoints
COPY alembic.ini ./
COPY migrations migrations
COPY parity parity
COPY parity_lab parity_lab
COPY server server
COPY training training
COPY workers workers
ENV PATH=/opt/parity/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PARITY_STATE_DIR=/state PARITY_LOG=json
USER parity
VOLUME /state
CMD ["python", "-m", "celery", "-A", "workers.app", "worker", "--loglevel", "INFO", "--without-mingle", "--without-gossip"]
