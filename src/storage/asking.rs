//! A request that failed is asked again when that may help: with newer keys, or after a pause.

use std::time::Duration;

use tokio::time::sleep;

use super::{Cause, JobStorage, Keys, StorageError};

/// Whoever renews keys has counters of their own; this is the end stop.
const RENEWALS: u32 = 60;
/// A store that wants to be left alone for longer gets the job back in the line instead of a worker that waits.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Whether others see what a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// They do not.
    Unseen,
    /// They do: the job must be ours, at each try.
    Seen,
}

impl JobStorage<'_> {
    /// Asks until there is an answer that asking again would not change.
    pub(super) async fn asked<T, F>(
        &self,
        step: Step,
        mut ask: impl FnMut(Keys) -> F,
    ) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, StorageError>>,
    {
        let (mut failed, mut renewed) = (0, 0);
        loop {
            // Before the keys are taken: the answer may wait for a database that is away.
            if step == Step::Seen && !self.access.is_ours().await {
                return Err(StorageError::not_ours());
            }
            let keys = self.access.keys();
            let version = keys.version;
            let error = match ask(keys).await {
                Ok(answer) => {
                    self.access.worked();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if error.cause == Cause::Auth {
                // A part beside this one may have had them renewed already.
                let is_newer = self.access.keys().version > version;
                renewed += 1;
                if renewed > RENEWALS || !is_newer && !self.access.renew(version, &error).await {
                    return Err(error);
                }
            } else if error.cause.passes() {
                failed += 1;
                if failed >= self.carrier.transfer.tries {
                    return Err(error);
                }
                match pause(failed, error.retry_after) {
                    Some(pause) => sleep(pause).await,
                    None => return Err(error),
                }
            } else {
                return Err(error);
            }
        }
    }
}

/// How long to wait after `failed` failures in a row; nothing: longer than a worker should.
pub(super) fn pause(failed: u32, retry_after: Option<Duration>) -> Option<Duration> {
    let doubled = FIRST_PAUSE * 2_u32.pow(failed.saturating_sub(1).min(5));
    let jittered = doubled.mul_f64(rand::random_range(0.5..1.0)).min(LONGEST_WAIT);
    let wait = retry_after.map_or(jittered, |asked| asked.max(jittered));
    (wait <= LONGEST_WAIT).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_is_jittered_and_heeds_retry_after_up_to_twenty_seconds() {
        for (failed, from, to) in [(1, 250, 500), (2, 500, 1000), (3, 1000, 2000), (60, 8000, 16_000)] {
            let waited = pause(failed, None).expect("a pause").as_millis();
            assert!((from..=to).contains(&waited), "{failed}: {waited} ms");
        }
        let seconds = Duration::from_secs;
        assert_eq!(pause(1, Some(seconds(7))), Some(seconds(7)));
        assert_eq!(pause(1, Some(seconds(20))), Some(seconds(20)));
        assert_eq!(pause(1, Some(seconds(21))), None);
        assert!(pause(4, Some(seconds(1))).expect("a pause") >= seconds(2), "our own pause, if it is longer");
    }
}
