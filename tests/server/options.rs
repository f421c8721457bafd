//! What the module may be loaded with.

use std::panic::catch_unwind;

use harness::{Ask, Server};

/// Starts a server whose module is given `arguments` and which must not come up; returns the end of its log.
#[track_caller]
fn refused(arguments: &str) -> String {
    let panic = catch_unwind(|| Server::builder().module_arguments(arguments).start());
    let message = panic.map(|_| ()).expect_err("the server must not start");
    message.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn arguments_that_are_not_understood_are_refused_with_what_would_be_right() {
    for (arguments, words) in [
        ("throttle yes", "unknown argument 'throttle'; known: cl-throttle yes|no, hot-keys 0..1024"),
        ("yes", "unknown argument 'yes'; known: cl-throttle yes|no, hot-keys 0..1024"),
        ("cl-throttle", "argument cl-throttle lacks its value: cl-throttle yes|no"),
        ("cl-throttle maybe", "argument cl-throttle must be yes|no, not 'maybe'"),
        ("cl-throttle 1", "argument cl-throttle must be yes|no, not '1'"),
        ("cl-throttle \u{e9}", "argument cl-throttle must be yes|no, not '\\xc3\\xa9'"),
        ("cl-throttle yes cl-throttle no", "argument cl-throttle is given twice"),
        ("hot-keys 1025", "argument hot-keys must be 0..1024, not '1025'"),
        ("hot-keys -1", "argument hot-keys must be 0..1024, not '-1'"),
        ("hot-keys +1", "argument hot-keys must be 0..1024, not '+1'"),
        ("hot-keys 0x40", "argument hot-keys must be 0..1024, not '0x40'"),
        ("hot-keys 18446744073709551617", "argument hot-keys must be 0..1024, not '18446744073709551617'"),
        ("cl-throttle yes x", "unknown argument 'x'; known: cl-throttle yes|no, hot-keys 0..1024"),
    ] {
        let log = refused(arguments);
        let line = format!("not loaded: {words}\n");
        assert!(log.contains(&line), "{arguments}: no line {line:?} in\n{log}");
    }
}

#[test]
fn arguments_are_read_without_regard_to_case() {
    for arguments in ["", "cl-throttle no", "CL-Throttle NO", "cl-throttle Yes"] {
        let server = Server::builder().module_arguments(arguments).start();
        assert_eq!(server.connection().ask::<[i64; 4]>("RL.TAKE k 5 1"), [1, 4, 0, 1000], "{arguments}");
    }
}
