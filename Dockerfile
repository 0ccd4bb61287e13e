# One static binary on an empty file system: no shell, no package to keep, an unprivileged user.
FROM rust:1.95-slim-bookworm AS build
# What TLS and compression are compiled by.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates musl-tools \
    && rustup target add "$(uname -m)-unknown-linux-musl"
WORKDIR /src
COPY . .
# The cache keeps dependencies compiled from one build to the next.
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" \
    && install -D "$(scripts/release.sh "$target")" /image/usr/bin/docward \
    && install -D --mode 0644 deploy/docker/docward.yaml /image/etc/docward/docward.yaml \
    # Authorities that upstreams' certificates are checked against when the connection string names none.
    && install -D --mode 0644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
LABEL org.opencontainers.image.title="docward" \
      org.opencontainers.image.description="A MongoDB wire-protocol proxy that enforces data-modelling patterns" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/ /
USER 65532:65532
EXPOSE 27018
# Whether it lives, not whether it is ready: who replaces unhealthy containers must not do so because MongoDB is down.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["/usr/bin/docward", "health", "--live", "--config", "/etc/docward/docward.yaml"]
ENTRYPOINT ["/usr/bin/docward"]
CMD ["serve", "--config", "/etc/docward/docward.yaml"]
