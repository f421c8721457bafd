//! Sequences of operations against the oracle.

use arbitrary::{Arbitrary, Result, Unstructured};
use num_rational::BigRational;
use redis_token_bucket_core::Tokens;

use crate::exact::{Operation, Step, compare, exact, ratio};

/// Takes, gifts and charges under limits that may change at each step, the clock going either way: every answer must be the
/// oracle's to within a nanotoken.
pub fn operations(data: &[u8]) {
    let mut source = Unstructured::new(data);
    let Ok(Some(first)) = limit(&mut source) else { return };
    let mut script = Vec::new();
    while script.len() < 60 && !source.is_empty() {
        match step(&mut source) {
            Ok(step) => script.push(step),
            Err(_) => break,
        }
    }
    if let Err(difference) = compare(first, script) {
        panic!("{difference}");
    }
}

fn step(source: &mut Unstructured<'_>) -> Result<Step> {
    let wait = match source.int_in_range(0..=7)? {
        0..=1 => source.int_in_range(0..=5_000)?,
        2..=3 => source.int_in_range(0..=5_000_000)?,
        4 => source.int_in_range(0..=10_000)? * 1000,
        5 => source.int_in_range(0..=1_000_000_000_000)?,
        6 => source.int_in_range(-3_000_000..=0)?,
        _ => 0,
    };
    let operation = match source.int_in_range(0..=5)? {
        0 => Operation::Give,
        1 => Operation::Charge,
        _ => Operation::Take,
    };
    let cost = amount(source)?;
    let limit = if source.ratio(1, 5)? { limit(source)? } else { None };
    Ok(Step { wait, operation, cost, limit })
}

fn amount(source: &mut Unstructured<'_>) -> Result<Tokens> {
    Ok(Tokens::from_nanos(match source.int_in_range(0..=6)? {
        0..=3 => source.int_in_range(0..=200_i128)? * 1_000_000_000,
        4..=5 => source.int_in_range(0..=50_000_000_000)?,
        _ => source.int_in_range(0..=Tokens::MAX.nanos())?,
    }))
}

/// A limit that the contract accepts; `None` if it would take more than 100 years to fill.
fn limit(source: &mut Unstructured<'_>) -> Result<Option<(Tokens, String, BigRational)>> {
    let capacity = amount(source)?;
    let number = source.int_in_range(1..=1_000_000_i128)?;
    let (text, rate) = match source.int_in_range(0..=3)? {
        0 => (number.to_string(), ratio(number, 1)),
        1 => {
            let places = source.int_in_range(1..=9_u32)?;
            (format!("{number}e-{places}"), ratio(number, 10_i128.pow(places)))
        }
        2 => {
            let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
            let (unit, millis) = *source.choose(&units)?;
            let count = i128::from(u8::arbitrary(source)?) + 1;
            (format!("{number}/{count}{unit}"), ratio(number * 1000, count * millis))
        }
        _ => {
            let number = source.int_in_range(1..=9_007_199_254_740_991_i128)?;
            (number.to_string(), ratio(number, 1))
        }
    };
    let in_time = exact(capacity) / &rate <= ratio(3_155_760_000, 1);
    Ok(in_time.then_some((capacity, text, rate)))
}
