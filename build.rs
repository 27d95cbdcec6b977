//! Chooses between Linux and the portable build, and names the choice for `cfg`.
//!
//! | name | |
//! |---|---|
//! | `portable` | without calls that only Linux has: on other systems, and where `--cfg millstream_portable` asks for it |
//! | `uring` | io_uring: the feature `fs`, on Linux only |
//! | `tls` | one of the features `tls-ring` and `tls-aws-lc-rs` |

use std::env::var_os;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(portable, uring, tls)");
    let is_linux = var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux");
    let is_portable = !is_linux || var_os("CARGO_CFG_MILLSTREAM_PORTABLE").is_some();
    if is_portable {
        println!("cargo::rustc-cfg=portable");
    } else if var_os("CARGO_FEATURE_FS").is_some() {
        println!("cargo::rustc-cfg=uring");
    }
    if ["RING", "AWS_LC_RS"].iter().any(|by| var_os(format!("CARGO_FEATURE_TLS_{by}")).is_some()) {
        println!("cargo::rustc-cfg=tls");
    }
}
