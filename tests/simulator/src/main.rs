//! Provider simulator.
fn main() {}
