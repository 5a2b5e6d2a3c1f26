#!/usr/bin/env bash
# Type-checks the CUDA build on a machine without a GPU: about 8 minutes on 2 cores, by hand, not in CI.
# nvcc and the headers come from PyPI wheels, in a folder of their own (default: target/cuda-check).
# Where the CUDA toolkit is installed, `cargo check --release --features cuda` alone does the same.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${1:-target/cuda-check}
mkdir -p "$work"
work=$(cd "$work" && pwd)
if [ ! -x "$work/venv/bin/pip" ]; then
    python3 -m venv "$work/venv"
fi
"$work/venv/bin/pip" install --quiet \
    'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-runtime==13.0.*' \
    'nvidia-cuda-cccl==13.0.*' 'nvidia-cublas==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' nvidia-curand
toolkit=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
export CUDA_HOME="$toolkit" CUDA_PATH="$toolkit" NVCC="$toolkit/bin/nvcc" PATH="$toolkit/bin:$PATH"
# the architecture and version that the code is compiled for when no GPU and no driver can be asked
export CUDA_COMPUTE_CAP=90 CUDARC_CUDA_VERSION=13000
cargo check --release --features cuda --target-dir "$work/target"
echo "the cuda feature type-checks"
