//! What rows become: one file, or the numbered files of a split export and their manifest, which
//! is written last (rule 23).

use std::{mem, ops::Range, sync::Arc};

use chrono::{DateTime, Utc};
use outport_contract::manifest::{self, Manifest, ManifestFile};
use outport_domain::{
    failure::{Failure, FailureCode},
    file_name,
    job::{ExportJob, FinishedFile, FinishedPart, Format, Protection, Warnings},
    object_key::ObjectKey,
    spec::ExportSpec,
};
use outport_source::Batch;
use tokio::sync::mpsc;

use crate::{
    Pipeline,
    encoder::{Encoder, encoder_of},
    file_writer::FileWriter,
    measure::Measure,
    run::{Ended, RunState, Target},
};

/// Encodes and writes the rows of one run.
pub(crate) struct Output<'a> {
    pipeline: &'a Pipeline,
    spec: &'a ExportSpec,
    state: &'a Arc<RunState>,
    file: File,
    parts: Option<Parts>,
    protection: Protection,
    /// What is written next.
    bytes: Vec<u8>,
}

/// The open file.
struct File {
    key: ObjectKey,
    encoder: Box<dyn Encoder>,
    writer: FileWriter,
}

/// The files of a split export.
struct Parts {
    measure: Measure,
    /// Rows of a batch that does not fit into the open file as a whole.
    piece: Batch,
    closed: Vec<FinishedPart>,
    // Sums over these.
    rows: u64,
    bytes: u64,
    warnings: Warnings,
}

impl<'a> Output<'a> {
    /// Opens the first file.
    pub(crate) fn open(
        pipeline: &'a Pipeline,
        spec: &'a ExportSpec,
        state: &'a Arc<RunState>,
    ) -> Result<Self, Ended> {
        let measure = spec.split.map(|split| Measure::new(spec, split));
        let measure = measure.transpose().map_err(failed)?;
        let parts = measure.map(|measure| Parts::new(measure, spec.columns.len()));
        let mut bytes = Vec::new();
        let protection = spec.resource.protection.unwrap_or(pipeline.protection);
        let target = File::target(spec, state, parts.as_ref().map(|_| 1), protection)?;
        let file = File::open(pipeline, spec, state, target, &mut bytes)?;
        Ok(Self { pipeline, spec, state, file, parts, protection, bytes })
    }

    /// Data rows so far.
    pub(crate) fn rows(&self) -> u64 {
        self.parts.as_ref().map_or(0, |parts| parts.rows) + self.file.encoder.rows()
    }

    /// Takes the rows of a batch, and gives it back as soon as they are encoded.
    pub(crate) async fn take(
        &mut self,
        batch: Batch,
        emptied: &mpsc::Sender<Batch>,
    ) -> Result<(), Ended> {
        let mut from = 0;
        loop {
            let rows = match &mut self.parts {
                None => batch.rows(),
                Some(parts) => parts.measure.take(&batch, from).map_err(failed)?,
            };
            let to = from + rows;
            self.encode(&batch, from..to)?;
            if to == batch.rows() {
                // A full or closed way back only means that the reader makes itself a new batch.
                drop(emptied.try_send(batch));
                return self.write().await;
            }
            self.write().await?;
            self.next_file().await?;
            from = to;
        }
    }

    fn encode(&mut self, batch: &Batch, rows: Range<usize>) -> Result<(), Ended> {
        let batch = match &mut self.parts {
            Some(parts) if rows.len() < batch.rows() => {
                parts.piece.copy_rows(batch, rows);
                &parts.piece
            }
            Some(_) | None => batch,
        };
        self.file.encoder.rows_of(batch, &mut self.bytes).map_err(failed)
    }

    /// Writes what is encoded.
    async fn write(&mut self) -> Result<(), Ended> {
        let limits = &self.state.limits;
        if self.rows() > limits.rows_per_export {
            return Err(limit_exceeded("rows", limits.rows_per_export));
        }
        self.file.writer.write(&self.bytes).await?;
        self.bytes.clear();
        let closed = self.parts.as_ref().map_or(0, |parts| parts.bytes);
        if closed + self.file.writer.size_bytes() > limits.bytes_per_export {
            return Err(limit_exceeded("bytes", limits.bytes_per_export));
        }
        Ok(())
    }

    async fn end_file(&mut self) -> Result<(), Ended> {
        self.file.encoder.finish(&mut self.bytes).map_err(failed)?;
        self.write().await
    }

    /// Closes the open file of a split export and opens another.
    async fn next_file(&mut self) -> Result<(), Ended> {
        self.end_file().await?;
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let number = parts.open_number() + 1;
        if number > self.state.limits.files_per_export {
            return Err(limit_exceeded("files", self.state.limits.files_per_export.into()));
        }
        let target = File::target(self.spec, self.state, Some(number), self.protection)?;
        let next = File::open(self.pipeline, self.spec, self.state, target, &mut self.bytes)?;
        parts.close(self.state, mem::replace(&mut self.file, next)).await
    }

    /// Ends the last file and, of a split export, writes the manifest.
    pub(crate) async fn finish(
        mut self,
        job: &ExportJob,
        snapshot_at: DateTime<Utc>,
    ) -> Result<FinishedFile, Ended> {
        self.end_file().await?;
        let Self { pipeline, spec, state, file, parts, protection, .. } = self;
        let Some(mut parts) = parts else {
            let written = file.writer.finish().await?;
            return Ok(FinishedFile {
                key: file.key,
                size_bytes: written.size_bytes,
                stored_bytes: written.stored_bytes,
                total_rows: file.encoder.rows(),
                sha256: written.sha256,
                integrity: Some(written.integrity),
                protection,
                warnings: file.encoder.warnings(),
                snapshot_at,
            });
        };
        parts.close(state, file).await?;
        let text = serde_json::to_vec_pretty(&parts.manifest(job, spec, snapshot_at));
        let text = text.map_err(|error| {
            failed(Failure::new(FailureCode::Internal, format!("no manifest: {error}")))
        })?;
        let content_type = Format::Json.content_type();
        let target = Target { key: state.key.clone(), content_type, number: None, protection };
        let mut writer = FileWriter::new(Arc::clone(state), pipeline.crash.clone(), target);
        writer.write(&text).await?;
        let written = writer.finish().await?;
        Ok(FinishedFile {
            key: state.key.clone(),
            size_bytes: parts.bytes,
            stored_bytes: written.stored_bytes,
            total_rows: parts.rows,
            sha256: written.sha256,
            integrity: Some(written.integrity),
            protection,
            warnings: parts.warnings,
            snapshot_at,
        })
    }
}

impl File {
    /// Where the file goes, or the numbered one of a split export.
    fn target(
        spec: &ExportSpec,
        state: &RunState,
        number: Option<u32>,
        protection: Protection,
    ) -> Result<Target, Ended> {
        let key = match number {
            None => state.key.clone(),
            Some(number) => {
                let (stem, extension) =
                    (&spec.resource.key_stem, spec.compression.extension(spec.format));
                ObjectKey::of_part(state.fence.job, state.fence.run, stem, number, &extension)
                    .map_err(|error| {
                        failed(Failure::new(FailureCode::Internal, error.to_string()))
                    })?
            }
        };
        let content_type = spec.compression.content_type(spec.format);
        Ok(Target { key, content_type, number, protection })
    }

    /// Opens the file; nothing is written yet, but for what stands before its first row, into
    /// `bytes`.
    fn open(
        pipeline: &Pipeline,
        spec: &ExportSpec,
        state: &Arc<RunState>,
        target: Target,
        bytes: &mut Vec<u8>,
    ) -> Result<Self, Ended> {
        let mut encoder = encoder_of(spec).map_err(failed)?;
        encoder.start(bytes).map_err(failed)?;
        let key = target.key.clone();
        let writer = FileWriter::new(Arc::clone(state), pipeline.crash.clone(), target);
        Ok(Self { key, encoder, writer })
    }
}

impl Parts {
    fn new(measure: Measure, columns: usize) -> Self {
        Self {
            measure,
            piece: Batch::new(columns),
            closed: Vec::new(),
            rows: 0,
            bytes: 0,
            warnings: Warnings::default(),
        }
    }

    fn open_number(&self) -> u32 {
        self.closed.len() as u32 + 1
    }

    /// Makes the open file visible, verifies it and notes what it has come to.
    async fn close(&mut self, state: &RunState, file: File) -> Result<(), Ended> {
        let File { key, encoder, writer } = file;
        let written = writer.finish().await?;
        verify(state, &key, written.stored_bytes).await?;
        let part = FinishedPart {
            number: self.open_number(),
            key,
            rows: encoder.rows(),
            size_bytes: written.size_bytes,
            stored_bytes: written.stored_bytes,
            sha256: written.sha256,
            integrity: Some(written.integrity),
        };
        state.record_part_written(&part).await?;
        self.rows += part.rows;
        self.bytes += part.size_bytes;
        self.warnings += encoder.warnings();
        self.closed.push(part);
        self.measure.restart();
        Ok(())
    }

    fn manifest(&self, job: &ExportJob, spec: &ExportSpec, snapshot_at: DateTime<Utc>) -> Manifest {
        let file = |part: &FinishedPart| ManifestFile {
            number: part.number,
            name: file_name::of_part(&job.file_name, spec.compression.suffix(), part.number),
            key: part.key.as_str().to_owned(),
            rows: part.rows,
            size_bytes: part.size_bytes,
            sha256: part.sha256.clone(),
            hmac: part.integrity.as_ref().map(|said| said.signature.clone()),
        };
        Manifest {
            version: manifest::VERSION,
            export_job_id: job.id.uuid(),
            resource: job.resource.clone(),
            format: spec.format.name().to_owned(),
            compression: spec.compression.name().to_owned(),
            content_type: spec.compression.content_type(spec.format).to_owned(),
            columns: job.columns.clone(),
            snapshot_at: snapshot_at.into(),
            total_rows: self.rows,
            size_bytes: self.bytes,
            files: self.closed.iter().map(file).collect(),
        }
    }
}

/// The store must report exactly the bytes that were sent (rule 1).
pub(crate) async fn verify(
    state: &RunState,
    key: &ObjectKey,
    stored_bytes: u64,
) -> Result<(), Ended> {
    let reported = state.timed(state.objects.head(key)).await?;
    let message = match reported {
        Some(meta) if meta.size == stored_bytes => return Ok(()),
        Some(meta) => {
            format!("the object store reports {} bytes and {stored_bytes} were sent", meta.size)
        }
        None => "the object store does not know the object that it accepted".to_owned(),
    };
    Err(failed(Failure::new(FailureCode::StoreMismatch, message)))
}

fn limit_exceeded(what: &str, limit: u64) -> Ended {
    let message = format!("the export has more than {limit} {what}; narrow the filters");
    failed(Failure::new(FailureCode::LimitExceeded, message))
}

pub(crate) fn failed(failure: Failure) -> Ended {
    Ended::Failed(failure, None)
}
