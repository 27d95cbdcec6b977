//! Unit tests of `successor`.

use super::*;

#[test]
fn the_next_process_is_this_program_without_what_a_manager_has_passed() {
    let command = command().unwrap();
    let command = command.as_std();
    let args: Vec<_> = std::env::args_os().collect();
    assert_eq!((command.get_program(), command.get_args().count()), (&*args[0], args.len() - 1));
    let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
    assert_eq!(removed, ["LISTEN_FDNAMES", "LISTEN_FDS", "LISTEN_PID"]);
}
