//! Percentiles.

use serde_json::{Value, json};

/// The smallest sample that at least `percent` of the samples do not exceed (nearest rank). `sorted` is not empty.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// Samples in microseconds as p50, p99 and maximum in milliseconds; `null` without samples.
pub(crate) fn summary(mut samples_us: Vec<u64>) -> Value {
    samples_us.sort_unstable();
    let Some(max) = samples_us.last() else { return Value::Null };
    json!({
        "p50": ms(percentile(&samples_us, 50)),
        "p99": ms(percentile(&samples_us, 99)),
        "max": ms(*max),
    })
}

/// Microseconds as milliseconds.
#[expect(clippy::cast_precision_loss, reason = "times of a benchmark are far below 2^53 microseconds")]
pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_ranks() {
        let hundred: Vec<u64> = (1..=100).map(|n| n * 1000).rev().collect();
        assert_eq!(summary(hundred), json!({"p50": 50.0, "p99": 99.0, "max": 100.0}));
        assert_eq!(summary(vec![1500]), json!({"p50": 1.5, "p99": 1.5, "max": 1.5}));
        assert_eq!(summary(vec![3000, 1000, 2000]), json!({"p50": 2.0, "p99": 3.0, "max": 3.0}));
        assert_eq!(summary(Vec::new()), Value::Null);
    }
}
