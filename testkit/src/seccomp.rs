//! System calls refused by the kernel, as in containers.

use std::env::consts::ARCH;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads, compile_from_json,
};
use serde_json::{Value, json};

/// Makes the system call with the number `call` fail with `errno` in this process from now on. Applies to all threads,
/// including running ones: a test runs beside the main thread. This cannot be undone, so call it in a child
/// ([`crate::child`]).
///
/// seccomp(2), with `SECCOMP_FILTER_FLAG_TSYNC` and `PR_SET_NO_NEW_PRIVS`; no privilege is needed.
pub fn deny(call: libc::c_long, errno: Errno) {
    answer(call, Vec::new(), errno.raw_os_error());
}

/// Makes every `preadv2` with `RWF_NOWAIT` succeed with 0 bytes, which Linux 5.10 returns in the middle of a file at a
/// page that is still being read ahead. Applies like [`deny`].
pub fn nowait_reads_nothing() {
    const FLAGS: u8 = 5;
    let nowait = u64::from(libc::RWF_NOWAIT.cast_unsigned());
    let is_nowait = SeccompCondition::new(FLAGS, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(nowait), nowait);
    // An error of 0 is a result of 0.
    answer(libc::SYS_preadv2, vec![SeccompRule::new(vec![is_nowait.unwrap()]).unwrap()], 0);
}

/// Makes a system call that returns a number of moved bytes return 0. Applies like [`deny`].
pub fn moves_nothing(call: libc::c_long) {
    answer(call, Vec::new(), 0);
}

fn answer(call: libc::c_long, rules: Vec<SeccompRule>, errno: i32) {
    let action = SeccompAction::Errno(errno.cast_unsigned());
    let rules = [(call, rules)].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, ARCH.try_into().unwrap()).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}

/// Installs a profile in the format of container engines: `defaultErrnoRet`, and `syscalls` that are allowed, under
/// conditions, or fail with `errnoRet`. Calls that this machine lacks are left out, as engines do. Applies like [`deny`].
pub fn install(profile: &Value) {
    let (mut listed, mut failing) = (Vec::new(), Vec::new());
    for group in profile["syscalls"].as_array().unwrap() {
        for name in group["names"].as_array().unwrap().iter().filter(|name| exists(name)) {
            if group["action"] == "SCMP_ACT_ALLOW" {
                listed.push(json!({ "syscall": name, "args": conditions(&group["args"]) }));
            } else {
                // Allowed by the first filter, and refused by one of its own: of two errors the newer filter's counts.
                listed.push(json!({ "syscall": name }));
                failing.push((name, &group["errnoRet"]));
            }
        }
    }
    let refuse = |errno: &Value| json!({ "errno": errno });
    load(&json!("allow"), &refuse(&profile["defaultErrnoRet"]), &json!(listed)).unwrap();
    for (name, errno) in failing {
        load(&refuse(errno), &json!("allow"), &json!([{ "syscall": name }])).unwrap();
    }
}

/// Translates the conditions of a group into those of `seccompiler`.
fn conditions(args: &Value) -> Option<Vec<Value>> {
    let condition = |arg: &Value| {
        let (op, value) = match arg["op"].as_str().unwrap() {
            "SCMP_CMP_NE" => (json!("ne"), &arg["value"]),
            "SCMP_CMP_MASKED_EQ" => (json!({ "masked_eq": arg["value"] }), &arg["valueTwo"]),
            op => panic!("{op}: add its translation here"),
        };
        json!({ "index": arg["index"], "type": "dword", "op": op, "val": value })
    };
    Some(args.as_array()?.iter().map(condition).collect())
}

fn exists(name: &Value) -> bool {
    compiled(&json!("allow"), &json!("log"), &json!([{ "syscall": name }])).is_ok()
}

fn load(matched: &Value, others: &Value, rules: &Value) -> Result<(), seccompiler::Error> {
    apply_filter_all_threads(&compiled(matched, others, rules)?)
}

fn compiled(matched: &Value, others: &Value, rules: &Value) -> Result<BpfProgram, seccompiler::Error> {
    let filter = json!({ "all": { "match_action": matched, "mismatch_action": others, "filter": rules } });
    let mut filters = compile_from_json(filter.to_string().as_bytes(), ARCH.try_into().unwrap())?;
    Ok(filters.remove("all").unwrap())
}
