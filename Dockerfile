# One image for a party or for the coordinator: docker run siloweave party start ..., see
# docs/guides/between-organisations.md. Everything it needs is installed when it is built; at run
# time nothing is downloaded.
FROM python:3.12-slim AS built
WORKDIR /source
COPY requirements-flower.lock pyproject.toml README.md LICENSE NOTICE ./
RUN python -m venv /opt/siloweave \
 && /opt/siloweave/bin/pip install --no-cache-dir --require-hashes -r requirements-flower.lock
COPY src src
RUN /opt/siloweave/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN useradd --create-home siloweave
COPY --from=built /opt/siloweave /opt/siloweave
USER siloweave
WORKDIR /home/siloweave
ENV PATH=/opt/siloweave/bin:$PATH
ENTRYPOINT ["siloweave"]
