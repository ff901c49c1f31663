# A worker on NVIDIA GPUs. The image brings CUDA, jax, optax, orbax, Transformer Engine and MaxText (amd64, and arm64 for Grace);
# this adds only what talks to the queue and the record, in an environment that sees the image's packages.
ARG JAX_IMAGE=ghcr.io/nvidia/jax:maxtext
FROM ${JAX_IMAGE}
ARG UV_VERSION=0.13.8
WORKDIR /app
COPY locks/server.lock docker/gpu-image-has.txt ./
# numpy and scipy stay the image's own, with which its jax was built.
RUN pip install --no-cache-dir uv==${UV_VERSION} && python3 -m venv --system-site-packages /opt/parity \
    && uv pip install --python /opt/parity/bin/python --no-cache --require-hashes --no-deps --excludes gpu-image-has.txt -r server.lock \
    && useradd --uid 10001 --create-home parity && install -d -o parity /state
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
