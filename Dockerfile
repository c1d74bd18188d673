# A server for strangers, described in assets/deploy/README.md. It writes only to /data and /tmp.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS build
# For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/headscope && mkdir /data
# Only torch comes from its own index, in the pinned version; its dependencies are installed below.
RUN /opt/headscope/bin/pip install --no-deps -c constraints.txt --index-url "$TORCH_INDEX" torch
COPY pyproject.toml README.md LICENSE app.py ./
COPY .streamlit ./.streamlit
COPY mha_core ./mha_core
COPY pages ./pages
COPY assets ./assets
RUN /opt/headscope/bin/pip install -c constraints.txt ".[minilm,room]"

FROM python:${PYTHON}-slim
COPY --from=build /opt/headscope /opt/headscope
COPY --from=build --chown=10001:10001 /data /data
ENV HEADSCOPE_HOSTED=1 HF_HUB_OFFLINE=1 HF_HOME=/data/models HEADSCOPE_RUNS=/data/runs HOME=/data USER=headscope
ENV OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8501
HEALTHCHECK --start-period=60s CMD ["/opt/headscope/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/headscope/health')"]
# Without an address to print, Streamlit would ask a server on the internet for its own.
CMD ["/opt/headscope/bin/headscope", "--server.headless=true", "--server.address=0.0.0.0", "--server.port=8501", "--browser.serverAddress=localhost"]
