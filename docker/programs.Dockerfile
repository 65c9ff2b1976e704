# The storage engine's programs, compiled, and nothing else: an image of five files that docker/Dockerfile copies from.
# `make images` can make the same image of programs that lie compiled already (docker/README.md).
ARG BASE=docker.io/library/debian:bookworm-slim@sha256:96e378d7e6531ac9a15ad505478fcc2e69f371b10f5cdf87857c4b8188404716
FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
# The CAs that downloads are trusted by: Debian's, or a file that is mounted for the build where a network has its own.
ARG CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
ENV SSL_CERT_FILE=${CA_BUNDLE} CURL_CA_BUNDLE=${CA_BUNDLE} PIP_CERT=${CA_BUNDLE} NODE_EXTRA_CA_CERTS=${CA_BUNDLE}
ARG RUSTUP=1.28.2
ARG RUSTUP_SHA256=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
ARG RUST=1.95.0
ENV RUSTUP_HOME=/opt/rustup CARGO_HOME=/opt/cargo PATH=/opt/cargo/bin:/usr/local/bin:/usr/bin:/bin
RUN curl -fsSLo /tmp/rustup-init \
        "https://static.rust-lang.org/rustup/archive/${RUSTUP}/x86_64-unknown-linux-gnu/rustup-init" \
    && echo "${RUSTUP_SHA256}  /tmp/rustup-init" | sha256sum --check --quiet \
    && chmod +x /tmp/rustup-init \
    && /tmp/rustup-init -y --no-modify-path --profile minimal --default-toolchain "${RUST}" \
    && rm /tmp/rustup-init
WORKDIR /src/storage
# Crates that others wrote are compiled into the cache mount and stay there: a change of our sources costs what cargo
# compiles anew, as in a checkout, so that manifests need no layer of their own.
COPY storage/ ./
ARG JOBS=2
RUN --mount=type=cache,target=/opt/cargo/registry --mount=type=cache,target=/src/target \
    CARGO_TARGET_DIR=/src/target cargo build --release --locked --workspace --bins -j "${JOBS}" \
    && mkdir /out \
    && for name in weir-safekeeper weir-pageserver weir-compute weir-members weir-proxy; do \
        strip --strip-debug -o "/out/$name" "/src/target/release/$name" || exit 1; \
    done

FROM scratch
COPY --from=build /out/ /
