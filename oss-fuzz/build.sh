#!/bin/bash -eu
# Builds all targets of fuzz/, with their seeds and dictionaries.
cd "$SRC/millstream"

# -O leaves assertions and overflow checks to the profile in fuzz/Cargo.toml.
cargo fuzz build -O

for target in $(cargo fuzz list); do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    if [[ -d fuzz/corpus/$target ]]; then zip -jqr "$OUT/${target}_seed_corpus.zip" "fuzz/corpus/$target"; fi
    if [[ -f fuzz/dictionaries/$target.dict ]]; then cp "fuzz/dictionaries/$target.dict" "$OUT/"; fi
    # A run takes milliseconds, and ends itself after nine seconds.
    printf '[libfuzzer]\ntimeout = 15\n' >"$OUT/$target.options"
done
