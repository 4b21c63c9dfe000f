# The service. From the top of the repository:
#   docker build --file deploy/docker/service.Dockerfile --tag livejoin:0.1.0 .
# Checked by rules (deploy/check), and built by buildah with Debian's Python in place of the official image.
ARG TARGETARCH

FROM python:3.11.14-slim-bookworm AS base
RUN groupadd --gid 10001 livejoin \
 && useradd --uid 10001 --gid livejoin --no-create-home --home-dir /var/lib/livejoin --shell /usr/sbin/nologin livejoin \
 && install --directory --owner livejoin --group livejoin --mode 0700 /var/lib/livejoin \
 && install --directory --owner livejoin --group livejoin /run/livejoin

# What the kernels are compiled for. Both must be fixed: Numba takes the features of the building machine otherwise, and compiled code
# that is stored under those is not found on another machine.
FROM base AS base-amd64
ENV NUMBA_CPU_NAME=x86-64-v3 \
    NUMBA_CPU_FEATURES=+cx16,+sahf,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave

FROM base AS base-arm64
ENV NUMBA_CPU_NAME=generic \
    NUMBA_CPU_FEATURES=+neon

# LIVEJOIN_CACHE is in the image and only read.
FROM base-${TARGETARCH} AS python
ENV LIVEJOIN_CACHE=/opt/livejoin/cache \
    PATH=/opt/livejoin/bin:$PATH

FROM python AS build
ENV PIP_NO_CACHE_DIR=1
COPY deploy/docker/build.lock deploy/docker/service.lock /src/deploy/docker/
RUN python -m venv /opt/livejoin \
 && /opt/livejoin/bin/python -m pip install --require-hashes --no-deps \
      --requirement /src/deploy/docker/build.lock --requirement /src/deploy/docker/service.lock \
 && find /opt/livejoin/lib -type d -name tests -prune -exec rm -r {} +
COPY . /src/
RUN python -m pip install --no-deps --no-build-isolation /src/client /src \
 && python -m pip uninstall --yes pip setuptools
# Minutes of processor time.
WORKDIR /
RUN python -m service.warming

FROM python
COPY --from=build /opt/livejoin /opt/livejoin
ENV LIVEJOIN_DATA=/var/lib/livejoin/data \
    LIVEJOIN_HOST=0.0.0.0 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/livejoin
VOLUME /var/lib/livejoin
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=4)"]
ENTRYPOINT ["livejoin"]
CMD ["serve"]
