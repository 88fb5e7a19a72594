//! How much one requester may ask for: so many requests a second on this pod, so many unfinished jobs at once.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use axum::response::Response;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::error::ApiError;
use crate::domain::RequesterId;
use crate::domain::transcode::ErrorCode;
use crate::store::{ApiKey, Result, Store};

/// A requester's bucket, and the rate and burst it was made for.
type Kept = (i32, i32, Arc<Bucket>);
type Bucket = RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>;

/// How old a count of unfinished jobs may be.
const FRESH: Duration = Duration::from_secs(2);
/// Requesters remembered at once; beyond that everybody starts anew.
const MOST: usize = 10_000;

/// What the rate limit says of a request, for its headers.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Requests that may come at once.
    pub limit: u32,
    /// How many of them are left.
    pub remaining: u32,
    /// When refused: how long to wait.
    pub retry_after: Option<Duration>,
}

impl Rate {
    /// The refusal, when there were too many.
    pub fn refusal(&self) -> Option<ApiError> {
        let wait = self.retry_after?;
        let mut refusal = ApiError::of(ErrorCode::RateLimited).retry_after(wait);
        refusal.rate = Some(*self);
        Some(refusal)
    }

    /// The answer, with what is left.
    pub fn shown_on(&self, mut answer: Response) -> Response {
        let headers = answer.headers_mut();
        headers.insert("ratelimit-limit", HeaderValue::from(self.limit));
        headers.insert("ratelimit-remaining", HeaderValue::from(self.remaining));
        answer
    }
}

/// The limits of everybody, in memory.
#[derive(Default)]
pub struct Meters {
    buckets: Mutex<HashMap<String, Kept>>,
    open: Mutex<HashMap<String, (Instant, i64)>>,
}

impl Meters {
    /// Counts one request of `requester`.
    pub fn count(&self, requester: &RequesterId, key: &ApiKey) -> Rate {
        let bucket = self.bucket(requester, key.requests_per_second, key.request_burst);
        let limit = key.request_burst.unsigned_abs();
        match bucket.check() {
            Ok(state) => Rate { limit, remaining: state.remaining_burst_capacity(), retry_after: None },
            Err(refused) => {
                let wait = refused.wait_time_from(DefaultClock::default().now());
                Rate { limit, remaining: 0, retry_after: Some(wait) }
            }
        }
    }

    fn bucket(&self, requester: &RequesterId, per_second: i32, burst: i32) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST {
            buckets.clear();
        }
        if let Some((rate, most, bucket)) = buckets.get(requester.as_str())
            && (*rate, *most) == (per_second, burst)
        {
            return Arc::clone(bucket);
        }
        let at_least_one = |number: i32| NonZeroU32::new(number.unsigned_abs()).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_second(at_least_one(per_second)).allow_burst(at_least_one(burst));
        let bucket = Arc::new(RateLimiter::direct(quota).with_middleware::<StateInformationMiddleware>());
        buckets.insert(requester.as_str().to_owned(), (per_second, burst, Arc::clone(&bucket)));
        bucket
    }

    /// May `requester` have one more unfinished job? Counted anew every two seconds; in between what this pod accepted
    /// is added.
    pub async fn has_room(&self, store: &Store, requester: &RequesterId, most: i32) -> Result<bool> {
        let known = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(requester.as_str()).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, count)| *count)
        };
        let count = match known {
            Some(count) => count,
            None => store.count_open_jobs(requester, most.clamp(1, 1_000_000)).await?,
        };
        let has_room = count < i64::from(most);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MOST {
            open.clear();
        }
        let (at, counted) = open.entry(requester.as_str().to_owned()).or_insert((Instant::now(), count));
        if known.is_none() {
            (*at, *counted) = (Instant::now(), count);
        }
        *counted += i64::from(has_room);
        Ok(has_room)
    }
}
