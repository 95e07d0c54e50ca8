# The suite on Kunlun P800 cards, on the vendor's image (Ubuntu 20, Python 3.10).
# Not verified: there was no Docker engine, no such card, and no access to Paddle's wheel index to build it.
#
#   docker build --file env/containers/xpu.Dockerfile --tag xpulab-xpu .
#   docker run --rm --privileged --network=host --shm-size=128G --cap-add=SYS_PTRACE \
#       --security-opt seccomp=unconfined --volume /usr/local/bin/xpu-smi:/usr/local/bin/xpu-smi \
#       xpulab-xpu --level standard --cards 8
#
# xpu-smi is mounted from the host. Instead of --privileged you can name the cards: --device=/dev/xpu0 ... --device=/dev/xpuctrl
FROM ccr-2vdh3abv-pub.cnc.bj.baidubce.com/device/paddle-xpu:ubuntu20-x86_64-gcc84-py310

WORKDIR /xpulab
COPY . .
# No card is visible while an image is built, hence --set. At run time --device xpu requires one and prints what is missing.
RUN python3 env/make_venv.py --set xpu

ENTRYPOINT ["bash", "env/validate.sh", "--device", "xpu"]
