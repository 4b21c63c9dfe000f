# The Spark job, and the producer of the demo. From the top of the repository:
#   docker build --file deploy/docker/stream.Dockerfile --tag livejoin-stream:0.1.0 .
# Checked by rules (deploy/check), and built by buildah with Debian's Python in place of the official image.
FROM python:3.11.14-slim-bookworm AS base
RUN groupadd --gid 10001 livejoin \
 && useradd --uid 10001 --gid livejoin --no-create-home --home-dir /var/lib/livejoin --shell /usr/sbin/nologin livejoin \
 && install --directory --owner livejoin --group livejoin --mode 0700 /var/lib/livejoin \
 && apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/*
ENV LIVEJOIN_JARS=/opt/livejoin/jars \
    PATH=/opt/livejoin/bin:$PATH

FROM base AS build
ENV PIP_NO_CACHE_DIR=1
COPY deploy/docker/build.lock deploy/docker/stream.lock /src/deploy/docker/
# pyspark is a source distribution, built here with the setuptools of the lock.
RUN python -m venv /opt/livejoin \
 && /opt/livejoin/bin/python -m pip install --require-hashes --no-deps --requirement /src/deploy/docker/build.lock \
 && /opt/livejoin/bin/python -m pip install --require-hashes --no-deps --no-build-isolation --requirement /src/deploy/docker/stream.lock \
 && find /opt/livejoin/lib -type d -name tests -prune -exec rm -r {} +
COPY . /src/
RUN python -m pip install --no-deps --no-build-isolation /src/client /src \
 && python -m pip uninstall --yes pip setuptools
WORKDIR /
# Spark's connector for Kafka, verified by the SHA-256 sums in streaming/jars.lock.
RUN python -m streaming.jars --spark

FROM base
COPY --from=build /opt/livejoin /opt/livejoin
ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/livejoin
VOLUME /var/lib/livejoin
USER 10001:10001
EXPOSE 9400
ENTRYPOINT ["livejoin"]
CMD ["stream", "--config", "/etc/livejoin/stream.toml", "--metrics-port", "9400", "--metrics-host", "0.0.0.0"]
