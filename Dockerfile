# One image for a party or for the coordinator: docker run siloweave party start ..., see
# docs/guides/between-organisations.md. Everything it needs is installed when it is built; at run
# time nothing is downloaded.
FROM python:3.12-slim AS built
WORKDIR /source
COPY requirements-flower.lock pyproject.toml README.md LICENSE NOTICE ./
RUN python -m venv /siloweave/env \
 && /siloweave/env/bin/pip install --no-cache-dir --require-hashes -r requirements-flower.lock
# That file also has what the engine's tests need.
RUN /siloweave/env/bin/pip uninstall --yes hypothesis pandas pyarrow pytest
COPY src src
RUN /siloweave/env/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN useradd --uid 1000 siloweave && mkdir --parents /siloweave/study \
 && chown siloweave /siloweave/study
COPY --from=built /siloweave/env /siloweave/env
# By its number, as Kubernetes asks for where root is not allowed.
USER 1000
WORKDIR /siloweave/study
# Compiled programs are not stored: the user has no home, and a container's name is new each time.
ENV PATH=/siloweave/env/bin:$PATH JAX_COMPILATION_CACHE_DIR=
# As Ctrl-C does; the first process of a container ignores SIGTERM.
STOPSIGNAL SIGINT
ENTRYPOINT ["siloweave"]
