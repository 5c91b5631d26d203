#!/bin/sh
# Everything that the peers need, outside of the tree: a virtual environment with PyTorch and NumPy (6 GB: the
# package has its CUDA libraries, without which it does not load) and the matrix products of the Rust crates.
# usage: setup.sh [FOLDER], by default $MONOGLOT_PEERS or ~/.cache/monoglot-peers
set -e
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${MONOGLOT_PEERS:-$HOME/.cache/monoglot-peers}}
python3 -m venv "$folder/python"
"$folder/python/bin/pip" install --quiet --upgrade numpy torch
CARGO_TARGET_DIR="$folder/products" cargo build --quiet --release --manifest-path "$here/products/Cargo.toml"
"$folder/python/bin/python" -c 'import numpy, torch; print("numpy", numpy.__version__, "torch", torch.__version__)'
