# A worker on CPUs: the emulated engine. amd64 and arm64.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
ARG UV_VERSION=0.13.8
# A launcher's trainers are checked out with git.
RUN apt-get update && apt-get install -y --no-install-recommends git openssh-client && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir uv==${UV_VERSION} && useradd --uid 10001 --create-home parity && install -d -o parity /state /checkpoints
WORKDIR /app
COPY locks/worker.lock ./
RUN uv pip install --system --no-cache --require-hashes -r worker.lock
COPY alembic.ini ./
COPY migrations migrations
COPY parity parity
COPY parity_lab parity_lab
COPY server server
COPY training training
COPY workers workers
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PARITY_STATE_DIR=/state PARITY_LOG=json
USER parity
VOLUME /state
CMD ["python", "-m", "celery", "-A", "workers.app", "worker", "--loglevel", "INFO", "--without-mingle", "--without-gossip"]
