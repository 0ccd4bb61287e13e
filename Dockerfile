# Builds docward and keeps only the binary, on a small base, as an unprivileged user.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin docward && cp target/release/docward /docward

FROM debian:bookworm-slim
LABEL org.opencontainers.image.title="docward" \
      org.opencontainers.image.description="A MongoDB wire-protocol proxy that enforces data-modelling patterns" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /docward /usr/local/bin/docward
# Authorities that upstreams' certificates are checked against when the connection string names none.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY rules /etc/docward/rules
USER 65532:65532
EXPOSE 27018
ENTRYPOINT ["docward"]
# Outside the container it must be reached, so it listens on all its addresses. Add
# `--upstream mongodb://...` and, for a replica set, `--advertise` with a reachable name.
CMD ["serve", "--listen", "0.0.0.0:27018", "--rules", "/etc/docward/rules"]
