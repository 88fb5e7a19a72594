# One image with every program; which one runs is the command. Small, without root, and content with a read-only root:
# what is written goes to /tmp and /work. tests/it/containers.rs assembles the last stage's files and runs them so.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bins

FROM debian:bookworm-slim
# ffmpeg for euterpe-transcode; authorities for TLS to webhooks, stores and Postgres.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates ffmpeg \
 && rm -rf /var/lib/apt/lists/*
# A volume that is new takes its owner from here.
RUN install -d -o 10001 -g 10001 /work /keys /media
COPY --from=build /src/target/release/euterpe /usr/local/bin/euterpe
COPY --from=build /src/target/release/euterpe-api /usr/local/bin/euterpe-api
COPY --from=build /src/target/release/euterpe-transcode /usr/local/bin/euterpe-transcode
COPY --from=build /src/target/release/euterpe-webhook /usr/local/bin/euterpe-webhook
COPY --from=build /src/target/release/euterpe-migrate /usr/local/bin/euterpe-migrate
COPY LICENSE /usr/share/doc/euterpe/LICENSE
ENV EUTERPE_HTTP_LISTEN=0.0.0.0:8080 \
    EUTERPE_METRICS_LISTEN=0.0.0.0:9464 \
    EUTERPE_WORK_DIR=/work \
    EUTERPE_LOG=json
USER 10001:10001
# Of a service; a command that ends has none.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["euterpe", "health", "http://127.0.0.1:9464/readyz"]
CMD ["euterpe", "--help"]
