//! The one place where a product can need more than 128 bits.

use core::num::NonZero;

/// ⌊(`a`·`b` + `plus`) / `divisor`⌋, or `u128::MAX` when that does not fit.
///
/// Exact when the product fits 128 bits, or `b` and `divisor` fit 64, or the quotient exceeds 128 bits anyhow. Every caller
/// is in one of these cases: see the invariant of [`Rate`](crate::Rate).
pub(crate) fn mul_add_div(a: u128, b: u128, plus: u128, divisor: NonZero<u128>) -> u128 {
    if let Some(sum) = a.checked_mul(b).and_then(|product| product.checked_add(plus)) {
        // Most rates are whole nanotokens per µs, and a division costs as much as all the rest.
        if divisor.get() == 1 {
            return sum;
        }
        return match (u64::try_from(sum), NonZero::<u64>::try_from(divisor)) {
            (Ok(sum), Ok(divisor)) => u128::from(sum / divisor),
            _ => sum / divisor,
        };
    }
    match (u64::try_from(b), NonZero::<u64>::try_from(divisor)) {
        (Ok(b), Ok(divisor)) => long_division(a, b, plus, divisor),
        _ => u128::MAX,
    }
}

/// Schoolbook multiplication and division in digits of 64 bits.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "each sum is of values below 2^64, in 128 bits; see the lines"
)]
fn long_division(a: u128, b: u64, plus: u128, divisor: NonZero<u64>) -> u128 {
    let low = |wide: u128| wide & u128::from(u64::MAX);
    let (b, divisor) = (u128::from(b), NonZero::<u128>::from(divisor));

    // (2^64 - 1)^2 + 2 (2^64 - 1) = 2^128 - 1, so a digit's product and two carries always fit.
    let d0 = low(a) * b + low(plus);
    let d1 = (a >> 64) * b + (plus >> 64) + (d0 >> 64);
    let d2 = d1 >> 64;
    if d2 >= divisor.get() {
        return u128::MAX;
    }
    // A remainder is below the divisor, hence below 2^64, and each quotient digit too.
    let n1 = (d2 << 64) | low(d1);
    let n0 = ((n1 % divisor) << 64) | low(d0);
    ((n1 / divisor) << 64) | (n0 / divisor)
}

#[cfg(test)]
mod tests {
    use super::mul_add_div;
    use core::num::NonZero;
    use num_rational::Ratio;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_equals_big_integer_arithmetic(a: u128, b: u64, plus: u128, c in 1..=u64::MAX, cut in 0..128_u32) {
            let a = a >> cut;
            let got = mul_add_div(a, b.into(), plus, NonZero::new(c.into()).unwrap());
            let exact = Ratio::new(big(a) * big(b.into()) + big(plus), big(c.into())).to_integer();
            prop_assert_eq!(big(got), exact.min(big(u128::MAX)));
        }
    }

    fn big(value: u128) -> num_bigint::BigInt {
        value.into()
    }
}
