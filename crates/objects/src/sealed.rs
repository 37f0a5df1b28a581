//! Sealed objects over any store: opened as they pass by, whole or a range, one chunk at a time.
//!
//! Who writes seals on the way, see [`Sealer`](sealed::Sealer); this is the reading side. Nothing
//! of a chunk is given out before all of it is verified, and a stream that ends without an error
//! was whole.

use std::{cmp::Ordering, ops::Range};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use outport_contract::{
    key_ring::KeyRing,
    sealed::{self, HEADER_BYTES, NotOpened, RangeOpener},
};
use outport_domain::object_key::ObjectKey;

use crate::{ObjectError, ObjectStore, ObjectStream, parts::refused};

/// A sealed object as its job knows it: nothing that the store says of it is believed.
#[derive(Clone, Copy, Debug)]
pub struct SealedObject<'a> {
    /// Where it is.
    pub key: &'a ObjectKey,
    /// The length of its plaintext.
    pub plain_bytes: u64,
    /// The length that the store must report.
    pub stored_bytes: u64,
}

/// The plaintext of an object, or of a range of it (end exclusive, within the plaintext), of
/// which only the chunks are read.
///
/// The object's length is compared first, and its beginning is opened before this returns: what
/// is wrong there is an error and not a stream that breaks off.
pub async fn open(
    store: &dyn ObjectStore,
    storage: &KeyRing,
    object: SealedObject<'_>,
    plain: Option<Range<u64>>,
) -> Result<ObjectStream, ObjectError> {
    let SealedObject { key, plain_bytes, stored_bytes } = object;
    whole(store, key, stored_bytes).await?;
    let beginning = beginning(store, key, stored_bytes).await?;
    let object = sealed::SealedObject::new(storage, key.as_str(), plain_bytes, &beginning)?;
    let opener = object
        .range(plain.unwrap_or(0..plain_bytes))
        .ok_or_else(|| refused("InvalidRange", "the range is not within the plaintext"))?;
    let stored = store.get(key, Some(opener.stored_range())).await?;
    let mut plaintext = stream::try_unfold((stored, opener), next_plain).boxed();
    let first = plaintext.try_next().await?;
    Ok(stream::iter(first.map(Ok)).chain(plaintext).boxed())
}

/// Compares the length of an object, sealed or not, with the one that its job knows.
pub async fn whole(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    stored_bytes: u64,
) -> Result<(), ObjectError> {
    let expected = stored_bytes;
    let found = store.head(key).await?.ok_or(ObjectError::NotFound)?.size;
    match found.cmp(&expected) {
        Ordering::Less => Err(NotOpened::Truncated { expected, found }.into()),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(NotOpened::TrailingData { expected }.into()),
    }
}

/// The bytes of an object that is not sealed, or of a range of it, after comparing its length.
/// One that is sealed after all is not given out when it is read from its start.
pub async fn pass(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    stored_bytes: u64,
    range: Option<Range<u64>>,
) -> Result<ObjectStream, ObjectError> {
    whole(store, key, stored_bytes).await?;
    let from_start = range.as_ref().is_none_or(|range| range.start == 0);
    let mut stream = store.get(key, range).await?;
    if !from_start {
        return Ok(stream);
    }
    let first = stream.try_next().await?;
    if first.as_deref().is_some_and(sealed::is_sealed) {
        return Err(ObjectError::Sealed);
    }
    Ok(stream::iter(first.map(Ok)).chain(stream).boxed())
}

async fn beginning(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    stored_bytes: u64,
) -> Result<Vec<u8>, ObjectError> {
    let header = 0..stored_bytes.min(HEADER_BYTES as u64);
    let pieces = store.get(key, Some(header)).await?;
    pieces
        .try_fold(Vec::with_capacity(HEADER_BYTES), async |mut all, piece| {
            all.extend_from_slice(&piece);
            Ok(all)
        })
        .await
}

/// The next plaintext: none when all of the range was given.
async fn next_plain(
    (mut stored, mut opener): (ObjectStream, RangeOpener),
) -> Result<Option<(Bytes, (ObjectStream, RangeOpener))>, ObjectError> {
    let mut plain = Vec::new();
    while let Some(piece) = stored.try_next().await? {
        opener.update(&piece, &mut plain)?;
        if !plain.is_empty() {
            return Ok(Some((plain.into(), (stored, opener))));
        }
    }
    opener.finish()?;
    Ok(None)
}
