#!/usr/bin/env bash
# A real SGLang for a machine without a GPU, in an ignored folder: tests/engines/install.sh [FOLDER, default .engines]
# About 75 s and 3.4 GB. FOLDER/serve then takes SGLang's own flags. Does nothing where it is already complete.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-.engines}"
out=$(cd "${1:-.engines}" && pwd)
if [ -f "$out/.complete" ] && cmp -s "$here/recipe/sglang-cpu.txt" "$out/.complete"; then
  echo "engines: $out is complete"
  exit 0
fi
python3 -m venv "$out/sglang"
pip=("$out/sglang/bin/python" -m pip install -q --disable-pip-version-check)
"${pip[@]}" --upgrade pip
"${pip[@]}" torch==2.13.0
"${pip[@]}" --no-deps -r "$here/recipe/sglang-cpu.txt"
"$out/sglang/bin/python" "$here/recipe/make_model.py" "$out/model"
cat >"$out/serve" <<S
#!/usr/bin/env bash
export PYTHONPATH="$here/recipe/stub" HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1
export OMP_NUM_THREADS=\${OMP_NUM_THREADS:-1}
exec "$out/sglang/bin/python" "$here/recipe/launch.py" --model-path "$out/model" --served-model-name tiny-moe \\
  --device cpu --attention-backend torch_native --max-total-tokens 65536 "\$@"
S
chmod +x "$out/serve"
cp "$here/recipe/sglang-cpu.txt" "$out/.complete"
echo "engines: $out is complete"
