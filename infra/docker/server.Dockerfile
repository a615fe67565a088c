# A Prefect server, or its services, at Postgres and Redis. Build from the root of the repository:
#   docker build -f infra/docker/server.Dockerfile -t temper-server .
FROM python:3.11-slim-bookworm
COPY infra/locks/uv.txt infra/locks/server.txt /locks/
RUN python -m venv /uv \
    && /uv/bin/python -m pip install --no-cache-dir --require-hashes -r /locks/uv.txt \
    && python -m venv /venv \
    && /uv/bin/uv pip sync --no-cache --compile-bytecode --python /venv /locks/server.txt \
    && rm -r /uv
ENV PATH=/venv/bin:$PATH
RUN useradd --create-home prefect
USER prefect
EXPOSE 4200
ENTRYPOINT ["prefect"]
CMD ["server", "start", "--no-services"]
