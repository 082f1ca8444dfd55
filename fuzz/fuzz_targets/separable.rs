#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| parsimax_testkit::fuzz::run("separable", bytes));
