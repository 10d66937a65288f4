# One image for a party or for the coordinator: docker run siloweave party start ..., see
# docs/guides/between-organisations.md. Everything it needs is installed when it is built; at run
# time nothing is downloaded.
FROM python:3.12-slim AS built
WORKDIR /source
COPY requirements-flower.lock pyproject.toml README.md LICENSE NOTICE ./
RUN python -m venv /siloweave/env \
 && /siloweave/env/bin/pip install --no-cache-dir --require-hashes -r requirements-flower.lock
COPY src src
RUN /siloweave/env/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN useradd siloweave && mkdir --parents /siloweave/study && chown siloweave /siloweave/study
COPY --from=built /siloweave/env /siloweave/env
USER siloweave
WORKDIR /siloweave/study
ENV PATH=/siloweave/env/bin:$PATH
ENTRYPOINT ["siloweave"]
