//! An output into object storage: by one request when it is small, else in parts ([`super::multipart`]).

use std::path::Path as FilePath;

use object_store::{Attribute, Attributes, ObjectStore, PutOptions, PutPayload};

use super::asking::Step;
use super::reading::Reading;
use super::s3::{self, Bucket, error_of};
use super::{JobStorage, Published, StorageError};

impl JobStorage<'_> {
    pub(super) async fn put_s3(
        &self,
        file: &FilePath,
        bucket: &str,
        key: &str,
        content_type: &str,
        on_bytes: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Published, StorageError> {
        let bucket = Bucket::of(&self.spec.storage, bucket);
        let mut reading = Reading::open(file).await?;
        let size_bytes = reading.size_bytes;
        let sha256 = if size_bytes > self.carrier.transfer.single_put_bytes {
            self.put_parts(reading, &bucket, key, content_type, on_bytes).await?
        } else {
            let whole = usize::try_from(size_bytes).unwrap_or(usize::MAX);
            let payload: PutPayload = reading.pieces(whole).await?.into_iter().collect();
            let path = s3::path(key)?;
            let put = |keys| {
                let client = self.client(&bucket, &keys);
                let (payload, path) = (payload.clone(), path.clone());
                let options = PutOptions { attributes: of_type(content_type), ..PutOptions::default() };
                async move { client?.put_opts(&path, payload, options).await.map_err(error_of) }
            };
            self.asked(Step::Seen, put).await?;
            reading.sha256()
        };
        on_bytes(size_bytes);
        Ok(Published { uri: bucket.uri(key), size_bytes, sha256 })
    }
}

pub(super) fn of_type(content_type: &str) -> Attributes {
    Attributes::from_iter([(Attribute::ContentType, content_type.to_owned())])
}
