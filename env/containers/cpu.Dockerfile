# The suite on a machine without an accelerator. Not built where it was written: there was no Docker engine.
#
#   docker build --file env/containers/cpu.Dockerfile --tag xpulab-cpu .
#   docker run --rm xpulab-cpu --level standard
FROM python:3.11-slim

# paddle links against the system's libgomp; the simulated accelerator (--device sim) is built with g++.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libgomp1 && rm -rf /var/lib/apt/lists/*

WORKDIR /xpulab
COPY . .
RUN python3 env/make_venv.py --set cpu

ENTRYPOINT ["bash", "env/validate.sh", "--device", "cpu"]
