//! Chores of the parsimax workspace.
fn main() {}
