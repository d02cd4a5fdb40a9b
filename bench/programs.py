"""The other gateways that are measured, and how each is started in front of the bench's upstream.

nginx passes the bytes through; `bench.baseline` is a minimal Python gateway; LiteLLM and OGX
translate, as we do. Those two are measured if their commands are on the PATH or named by
BENCH_LITELLM and BENCH_OGX. Each runs one process that logs errors only, stores nothing and calls
only the upstream.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.serve import free_port

START_SECONDS = 90

NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
  fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  upstream chat {{ server 127.0.0.1:{upstream}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://chat; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""

# Without `use_chat_completions_api` LiteLLM calls the Responses API of an OpenAI upstream.
LITELLM = """
model_list:
  - model_name: "*"
    litellm_params:
      model: openai/*
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: x
      use_chat_completions_api: true
"""

# OGX requires the files, tool and vector APIs for responses, even without providers for them.
OGX = """
version: 2
distro_name: bench
apis: [inference, responses, files, vector_io, tool_runtime]
providers:
  inference:
    - provider_id: local
      provider_type: remote::openai
      config: {{base_url: "http://127.0.0.1:{upstream}/v1", api_key: x}}
  responses:
    - provider_id: builtin
      provider_type: inline::builtin
      config: {{persistence: {{responses: {{table_name: responses, backend: sql}}}}}}
  files:
    - provider_id: localfs
      provider_type: inline::localfs
      config: {{storage_dir: {folder}/files, metadata_store: {{table_name: files, backend: sql}}}}
  vector_io: []
  tool_runtime: []
storage:
  backends:
    kv: {{type: kv_sqlite, db_path: {folder}/kv.db}}
    sql: {{type: sql_sqlite, db_path: {folder}/sql.db}}
  stores:
    metadata: {{namespace: registry, backend: kv}}
    inference: {{table_name: inference, backend: sql, enabled: false}}
    conversations: {{table_name: conversations, backend: sql}}
    prompts: {{table_name: prompts, backend: sql}}
    connectors: {{table_name: connectors, backend: sql}}
registered_resources:
  models:
    - {{model_id: saturated, provider_id: local, model_type: llm}}
    - {{model_id: paced, provider_id: local, model_type: llm}}
server: {{host: 127.0.0.1, port: {port}}}
"""


class MeasurementFailed(Exception):
    """A gateway did not start, or did not answer as expected."""


@dataclass(frozen=True)
class Program:
    """A gateway's command, and where it answers."""

    who: str
    command: list[str]
    port: int
    path: str = "/v1/responses"
    models: str = ""
    """Prefix of the upstream's model names."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    is_rival: bool = False
    """Whether it is optional and slow: it gets a smaller load."""

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    @contextmanager
    def running(self) -> Iterator[int]:
        """Run it; give its pid. Raises MeasurementFailed."""
        with run_process(*self.command, port=self.port, environment=self.environment) as pid:
            yield pid


def nginx(upstream: int, folder: Path) -> Program:
    """Pass bytes through."""
    port, config = free_port(), folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, upstream=upstream, port=port))
    return Program("nginx", ["nginx", "-c", str(config)], port, path="/v1/chat/completions")


def baseline(upstream: int, folder: Path) -> Program:
    """Translate with the minimal Python gateway."""
    del folder
    port = free_port()
    return Program("bare", [sys.executable, "-m", "bench.baseline", str(port), str(upstream)], port)


def litellm(upstream: int, folder: Path) -> Program:
    """Translate with LiteLLM."""
    port, config = free_port(), folder / "litellm.yaml"
    config.write_text(LITELLM.format(upstream=upstream))
    command = [os.environ.get("BENCH_LITELLM", "litellm"), "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "true",  # or it fetches prices when it starts
        "LITELLM_LOG": "ERROR",
    }
    return Program("litellm", command, port, environment=environment, is_rival=True)


def ogx(upstream: int, folder: Path) -> Program:
    """Translate with OGX."""
    port, config = free_port(), folder / "ogx.yaml"
    config.write_text(OGX.format(folder=folder, upstream=upstream, port=port))
    command = [os.environ.get("BENCH_OGX", "ogx"), "run", str(config), "--insecure"]
    environment = {"OGX_CONFIG_DIR": str(folder), "OGX_LOGGING": "all=error"}
    return Program("ogx", command, port, models="local/", environment=environment, is_rival=True)


@contextmanager
def run_process(*command: str, port: int, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a process that listens on a port; give its pid. Raises MeasurementFailed."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | (environment or {}))
        except OSError as error:
            raise MeasurementFailed(f"{command[0]}: {error.strerror}") from None
        try:
            wait_for(process, port, log)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(process: "subprocess.Popen[bytes]", port: int, log: IO[bytes]) -> None:
    """Wait until a process answers with any status."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    log.seek(0)
    said = log.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(said) if line.strip()), "nothing")
    how = f"it ended with {process.returncode}"
    if process.poll() is None:
        how = f"it did not answer within {START_SECONDS} s"
    raise MeasurementFailed(f"{how}, and last said: {last}")
