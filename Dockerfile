# One image for every part: `pointsman`, and the names under which other systems start the picker and the simulator.
# BASE needs Python 3.11 or newer with venv; any Debian-like image will do.
ARG BASE=python:3.12-slim
FROM ${BASE}

WORKDIR /opt/pointsman
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes \
      -r requirements/build.txt -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
 && ln -s /opt/venv/bin/pointsman /opt/venv/bin/epp-scheduler /opt/venv/bin/llm-d-inference-sim /usr/local/bin/

# No shell, no home: the process needs neither. The number, because Kubernetes cannot check a name for runAsNonRoot.
USER 65532:65532
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# ext_proc, health, metrics of the picker; the simulator.
EXPOSE 9002 9003 9090 8000
ENTRYPOINT ["/usr/local/bin/pointsman"]
