//! Set-up, tests and house rules.
fn main() {}
