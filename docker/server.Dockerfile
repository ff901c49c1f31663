# The web process and the migrations. No jax: the server never trains.
FROM node:22-slim@sha256:83f487e0a63425e5b4d146fb5e5be574bcbe1b7b843d3ebafdd95eaf7767a7e5 AS assets
WORKDIR /assets
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --no-audit --no-fund

# The documentation under /docs.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS docs
ARG UV_VERSION=0.13.8
RUN pip install --no-cache-dir uv==${UV_VERSION}
WORKDIR /app
COPY locks/docs.lock ./
RUN uv pip install --system --no-cache --require-hashes -r docs.lock
# With every file that a page links to.
COPY README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md mkdocs.yml ./
COPY docs docs
COPY examples examples
COPY parity parity
COPY parity_lab parity_lab
COPY server server
COPY training training
COPY tools/site tools/site
COPY tests/test_backup.py tests/
RUN python -m mkdocs build --strict

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
ARG UV_VERSION=0.13.8
RUN pip install --no-cache-dir uv==${UV_VERSION} && useradd --uid 10001 --create-home parity && install -d -o parity /state
WORKDIR /app
COPY locks/server.lock ./
RUN uv pip install --system --no-cache --require-hashes -r server.lock
COPY alembic.ini ./
COPY migrations migrations
COPY parity parity
COPY parity_lab parity_lab
COPY server server
# Specifications and their rules; the server never imports jax, so none is installed here.
COPY training training
COPY --from=assets /assets/node_modules node_modules
COPY --from=docs /app/build/docs build/docs
# It listens on every address of its container, so it asks for tokens.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PARITY_STATE_DIR=/state PARITY_LOG=json PARITY_HOST=0.0.0.0
USER parity
VOLUME /state
EXPOSE 8321
CMD ["python", "-m", "uvicorn", "--factory", "server.app:from_environment", "--http", "server.web.connection:Connection", "--host", "0.0.0.0", "--port", "8321", "--timeout-graceful-shutdown", "5"]
