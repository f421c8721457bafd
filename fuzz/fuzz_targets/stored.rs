#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redis_token_bucket_fuzz::stored(data));
