# The suite on a machine without an accelerator. Not verified: there was no Docker engine to build it.
#
#   docker build --file env/containers/cpu.Dockerfile --tag xpulab-cpu .
#   docker run --rm xpulab-cpu --level standard
FROM python:3.11-slim

# paddle needs libgomp from the system; the simulated accelerator (--device sim) is compiled with g++.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libgomp1 && rm -rf /var/lib/apt/lists/*

WORKDIR /xpulab
COPY . .
RUN python3 env/make_venv.py --set cpu

ENTRYPOINT ["bash", "env/validate.sh", "--device", "cpu"]
