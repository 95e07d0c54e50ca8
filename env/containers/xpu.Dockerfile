# The suite on Kunlun P800 cards, on the vendor's image (Ubuntu 20, Python 3.10).
# Not built where it was written: there was no Docker engine, no such card, and no way to Paddle's wheel index.
#
#   docker build --file env/containers/xpu.Dockerfile --tag xpulab-xpu .
#   docker run --rm --privileged --network=host --shm-size=128G --cap-add=SYS_PTRACE \
#       --security-opt seccomp=unconfined --volume /usr/local/bin/xpu-smi:/usr/local/bin/xpu-smi \
#       xpulab-xpu --level standard --cards 8
#
# xpu-smi comes from the host. Instead of --privileged the cards can be named: --device=/dev/xpu0 ... --device=/dev/xpuctrl
FROM ccr-2vdh3abv-pub.cnc.bj.baidubce.com/device/paddle-xpu:ubuntu20-x86_64-gcc84-py310

WORKDIR /xpulab
COPY . .
# No card is visible while an image is built, hence --set. At run time one must be: --device xpu says what is missing.
RUN python3 env/make_venv.py --set xpu

ENTRYPOINT ["bash", "env/validate.sh", "--device", "xpu"]
