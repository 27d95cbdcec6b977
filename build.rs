//! Chooses between Linux and the portable build, and names the choice for `cfg`.
//!
//! | name | |
//! |---|---|
//! | `portable` | the build by std and tokio alone: on other systems than Linux, and wherever `--cfg millstream_portable` or the environment variable `MILLSTREAM_PORTABLE` asks for it |
//! | `uring` | the feature `uring`, on Linux only |

use std::env::var_os;

fn main() {
    println!("cargo::rerun-if-env-changed=MILLSTREAM_PORTABLE");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(portable, uring)");
    let is_linux = var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux");
    let asked = |name| var_os(name).is_some();
    if !is_linux || asked("CARGO_CFG_MILLSTREAM_PORTABLE") || asked("MILLSTREAM_PORTABLE") {
        println!("cargo::rustc-cfg=portable");
    } else if asked("CARGO_FEATURE_URING") {
        println!("cargo::rustc-cfg=uring");
    }
}
