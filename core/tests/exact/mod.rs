//! The oracle: the contract in exact rational arithmetic, with no thought of speed. The property tests of this crate and the
//! fuzzers compare with it.

use num_rational::BigRational;
use redis_token_bucket_core::{Bucket, Limit, MAX_MILLIS, Outcome, Rate, Tokens};

/// Fails with a message, as `assert!` does, but by returning it: a property test then looks for a smaller case.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

/// A time to start from: some moment of 2023, in µs.
pub(crate) const START: u64 = 1_700_000_000_000_000;

/// The contract, line by line, in rationals of tokens and seconds.
struct Oracle {
    stored: Option<(BigRational, BigRational)>,
}

#[derive(Clone)]
struct OracleLevel {
    balance: BigRational,
    at: BigRational,
    repaired: bool,
    now: BigRational,
    rate: BigRational,
}

impl Oracle {
    fn level(&self, capacity: &BigRational, rate: &BigRational, now_micros: u64) -> OracleLevel {
        let now = ratio(now_micros.into(), 1_000_000);
        let (mut balance, mut at, mut repaired) = (capacity.clone(), now.clone(), false);
        if let Some((tokens, ts)) = &self.stored {
            repaired = ts - &now > capacity / rate;
            let since = if repaired { now.clone() } else { ts.clone() };
            at = now.clone().max(since.clone());
            balance = (tokens + (&at - since) * rate).min(capacity.clone());
        }
        OracleLevel { balance, at, repaired, now, rate: rate.clone() }
    }

    /// Stores what is left, brought back to the whole millisecond.
    fn take(&mut self, level: &OracleLevel, cost: &BigRational) {
        let ts = (&level.at * ratio(1000, 1)).floor() / ratio(1000, 1);
        self.stored = Some((&level.balance - cost - (&level.at - &ts) * &level.rate, ts));
    }
}

impl OracleLevel {
    /// Milliseconds until the balance is `target`, not yet rounded up; at most what is ever answered.
    fn millis_until(&self, target: &BigRational) -> BigRational {
        if target <= &self.balance {
            return ratio(0, 1);
        }
        let millis = ((target - &self.balance) / &self.rate + &self.at - &self.now) * ratio(1000, 1);
        millis.min(ratio(MAX_MILLIS.into(), 1))
    }
}

pub(crate) fn ratio(numerator: i128, denominator: i128) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

pub(crate) fn exact(tokens: Tokens) -> BigRational {
    ratio(tokens.nanos(), 1_000_000_000)
}

/// What is done with an amount.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Take,
    Give,
    Charge,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) wait: i64,
    pub(crate) operation: Operation,
    pub(crate) cost: Tokens,
    pub(crate) limit: Option<(Tokens, String, BigRational)>,
}

/// Runs the script on both; every answer must be the exact one, or differ by less than `slack` nanotokens. A change of rate
/// starts a new grid, and may add a nanotoken; so does a time that is replaced, as the same grid goes on from elsewhere.
pub(crate) fn compare(first: (Tokens, String, BigRational), script: Vec<Step>) -> Result<(), String> {
    let (mut capacity, mut text, mut rate) = first;
    let mut slack_nanos = 1;
    let mut now = START;
    let mut stored: Option<Bucket> = None;
    let mut oracle = Oracle { stored: None };
    for Step { wait, operation, cost, limit } in script {
        if let Some(new) = limit {
            (capacity, text, rate) = new;
            slack_nanos += 1;
        }
        now = now.saturating_add_signed(wait);
        let limit = Limit::new(capacity, Rate::parse(text.as_bytes()).unwrap()).unwrap();

        let level = limit.level(stored, now);
        let exact_level = oracle.level(&exact(capacity), &rate, now);
        slack_nanos += i128::from(exact_level.repaired);
        let slack = ratio(slack_nanos, 1_000_000_000);
        let spare = &exact_level.balance - exact(cost);
        // What is left by each, the outcome to be told and the cost it is about, and what to store of it.
        let (decision, asked, left, after) = match operation {
            Operation::Take => {
                let (decision, left) = level.take(cost);
                check_outcome(decision.outcome, &exact_level, cost, capacity, &slack)?;
                let after = if left.is_some() { spare } else { exact_level.balance.clone() };
                (decision, None, left, after)
            }
            Operation::Give => {
                let left = level.plus(cost);
                let after = (&exact_level.balance + exact(cost)).min(exact(capacity));
                (left.decision(left.outcome(Tokens::ONE)), Some(Tokens::ONE), Some(left), after)
            }
            Operation::Charge => {
                let left = level.minus(cost);
                (left.decision(left.outcome(Tokens::ONE)), Some(Tokens::ONE), Some(left), spare)
            }
        };
        if let Some(left) = left.or(level.repaired().then_some(level)) {
            ensure!(exact_level.repaired || !level.repaired(), "a possible time was replaced");
            stored = Some(left.stored());
            oracle.take(&exact_level, &(&exact_level.balance - &after));
        }
        if let Some(cost) = asked {
            let exact_level = OracleLevel { balance: after.clone(), ..exact_level.clone() };
            check_outcome(decision.outcome, &exact_level, cost, capacity, &slack)?;
        }
        let low = (&after - &slack).floor().max(ratio(0, 1));
        let high = (&after + &slack).floor().max(ratio(0, 1));
        let remaining = ratio(decision.remaining.into(), 1);
        ensure!(low <= remaining && remaining <= high, "remaining {remaining}, exact {after}");

        let after = OracleLevel { balance: after, ..exact_level };
        let early = after.millis_until(&(exact(capacity) - &slack)).max(ratio(0, 1));
        let late = after.millis_until(&(exact(capacity) + &slack)).max(ratio(0, 1));
        let reset = ratio(decision.reset_after_ms.into(), 1);
        ensure!(reset >= early && reset < &late + ratio(1, 1), "reset after {reset}, exact {early}..{late}");
    }
    Ok(())
}

/// `outcome` must be what `cost` gets at `level`.
fn check_outcome(
    outcome: Outcome,
    level: &OracleLevel,
    cost: Tokens,
    capacity: Tokens,
    slack: &BigRational,
) -> Result<(), String> {
    let spare = &level.balance - exact(cost);
    match outcome {
        Outcome::Allowed => ensure!(spare > -slack, "allowed with {spare} to spare"),
        Outcome::Never => ensure!(cost > capacity, "{cost} of {capacity} is not never"),
        Outcome::RetryAfter(millis) => {
            ensure!(spare < *slack, "denied with {spare} to spare");
            let early = level.millis_until(&(exact(cost) - slack));
            let late = level.millis_until(&(exact(cost) + slack));
            let millis = ratio(millis.into(), 1);
            ensure!(
                millis >= early && millis < &late + ratio(1, 1),
                "retry after {millis}, exact {early}..{late}"
            );
        }
    }
    Ok(())
}
