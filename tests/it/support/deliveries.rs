//! Short words for what webhook workers do, and for what is sealed.

use euterpe::domain::{Delivery, JobId, NewJob, Outcome, Sealed, WorkerId};
use euterpe::store::{ClaimedEvent, Settled};

use super::{TestDb, WEBHOOKS, requester, with_webhook};

impl TestDb {
    /// The next event of `queue`, in the hands of `worker`; there must be one.
    pub async fn take_event(&self, queue: &str, worker: &WorkerId) -> ClaimedEvent {
        let mut events = self.store().claim_events(queue, worker, 1, None).await.unwrap();
        assert_eq!(events.len(), 1, "one event is ready in {queue}");
        events.remove(0)
    }

    /// What came of a delivery that is still `worker`'s.
    pub async fn settle(&self, worker: &WorkerId, event: &ClaimedEvent, met: Delivery) -> Settled {
        let answer = self.store().settle_events(worker, &[(event.claim, met)]).await.unwrap().remove(0);
        assert_eq!(answer.outcome, Outcome::Ok);
        answer
    }

    /// Takes the next event of `queue` and settles it.
    pub async fn try_event(&self, queue: &str, met: Delivery) -> (ClaimedEvent, Settled) {
        let pod = super::worker("webhook");
        let event = self.take_event(queue, &pod).await;
        let answer = self.settle(&pod, &event, met).await;
        (event, answer)
    }

    /// Nothing may be claimed now, neither first attempts nor retries.
    pub async fn assert_no_event(&self, why: &str) {
        for queue in WEBHOOKS {
            let events =
                self.store().claim_events(queue, &super::worker("webhook"), 100, None).await.unwrap();
            assert!(events.is_empty(), "{why}: {events:?}");
        }
    }

    /// The delivery states of a job's events, in order.
    pub async fn deliveries(&self, id: JobId) -> Vec<String> {
        let sql =
            format!("select status from euterpe.job_outbox_events where job_id = '{id}' order by sequence");
        self.rows(&sql).await.iter().map(|row| row.get(0)).collect()
    }

    /// A job with a webhook that has ended at once: three events, queued, claimed and failed, the first in the line.
    pub async fn three_events(&self) -> JobId {
        let id = self.enqueue_with(with_webhook()).await;
        self.store().cancel_job(id, None, None).await.unwrap();
        id
    }

    /// One job of `name`'s, as it is.
    pub async fn enqueue_for(&self, name: &str, job: NewJob) -> JobId {
        let job = NewJob { request: serde_json::json!({}), ..job };
        self.store().enqueue_job(&requester(name), super::QUEUE, &job).await.unwrap().job_id
    }
}

/// A job whose webhook is at `origin`.
pub fn webhook_at(origin: &str) -> NewJob {
    NewJob { callback_origin: Some(origin.to_owned()), ..with_webhook() }
}

/// Something sealed; SQL never looks inside.
pub fn sealed(secret: &str) -> Sealed {
    Sealed {
        encrypted: format!("\\x{}", hex::encode(secret)),
        dek_wrapped: "\\x00ff".into(),
        kek_id: "kek-1".into(),
        encryption_version: 1,
        can_refresh: None,
    }
}

/// A job with storage credentials and a webhook; `can_refresh`: it has a refresh_url, too.
pub fn with_secrets(can_refresh: bool) -> NewJob {
    let callback = Sealed { can_refresh: Some(can_refresh), ..sealed("callback") };
    NewJob {
        sealed: [("storage".to_owned(), sealed("storage")), ("callback".to_owned(), callback)].into(),
        ..with_webhook()
    }
}
