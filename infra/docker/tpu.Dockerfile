# Temper on Google's TPUs: libtpu is in the lock. Build from the root of the repository, then run:
#   docker build -f infra/docker/tpu.Dockerfile -t temper-tpu .
#   docker run --rm --privileged --net=host temper-tpu run pipelines/smoke.yaml
FROM python:3.11-slim-bookworm AS build
COPY infra/locks/uv.txt infra/locks/tpu.txt /locks/
RUN python -m venv /uv \
    && /uv/bin/python -m pip install --no-cache-dir --require-hashes -r /locks/uv.txt \
    && python -m venv /venv \
    && /uv/bin/uv pip sync --no-cache --compile-bytecode --python /venv /locks/tpu.txt
COPY pyproject.toml README.md LICENSE /source/
COPY flows /source/flows
COPY tasks /source/tasks
COPY pipelines /source/pipelines
COPY stages /source/stages
RUN /uv/bin/uv pip install --no-cache --compile-bytecode --python /venv --no-deps --no-build-isolation /source

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home temper \
    && install --directory --owner temper /project /project/.temper /project/.temper/store /state
COPY --from=build /venv /venv
COPY --chown=temper pipelines /project/pipelines
ENV PATH=/venv/bin:$PATH XDG_CACHE_HOME=/state/cache XDG_STATE_HOME=/state
USER temper
WORKDIR /project
# The first process of a container must reap what others leave, which Python does not.
ENTRYPOINT ["tini", "--", "temper"]
CMD ["--help"]
