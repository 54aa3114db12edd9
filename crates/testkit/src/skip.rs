//! Skips of tests, only for what a machine may lack.
//!
//! A test that needs a privilege, a program or a kernel feature requests it here. If the machine lacks it, a line that
//! begins with `skipped:` is printed, which `cargo xtask test` counts and `cargo xtask ci` refuses; every other error
//! is a defect and fails the test.

use std::fmt::Display;
use std::io;

/// Returns the value; `None` with a `skipped:` line if the error means that the machine lacks something.
///
/// # Panics
/// With any other error.
pub fn unless_missing<T, E: Display>(
    result: Result<T, E>,
    is_missing: impl FnOnce(&E) -> bool,
) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if is_missing(&error) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("this machine lacks nothing, and still: {error}"),
    }
}

/// True if a system call was refused for lack of privilege (`EPERM`); a verifier refuses with `EACCES` or `EINVAL`.
pub fn is_unprivileged(error: &io::Error) -> bool {
    error.raw_os_error() == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_missing_fails() {
        assert!(is_unprivileged(&io::Error::from_raw_os_error(1)));
        for code in [13, 22] {
            let failed = std::panic::catch_unwind(|| {
                unless_missing(Err::<(), _>(io::Error::from_raw_os_error(code)), is_unprivileged)
            });
            assert!(failed.is_err(), "{code}");
        }
        assert_eq!(unless_missing(Ok::<_, io::Error>(7), is_unprivileged), Some(7));
    }
}
