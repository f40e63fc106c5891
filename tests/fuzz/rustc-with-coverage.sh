#!/bin/sh
# The workspace wrapper of `cargo fuzz-long`: cargo runs `<this> rustc <arguments>` for the crates of the
# workspace only, so that they are instrumented and their dependencies are those of the tests. All
# flags are those of stable compilers. A panic says where it is without debug info.
set -eu
rustc=$1
shift
exec "$rustc" "$@" \
    -Copt-level=1 \
    -Cdebuginfo=0 \
    -Ccodegen-units=16 \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
