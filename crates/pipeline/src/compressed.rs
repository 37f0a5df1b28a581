//! A file compressed as a whole (rule 22), as its bytes pass by: the memory taken is that of the
//! compressor's window.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use outport_domain::{
    failure::{Failure, FailureCode},
    job::Warnings,
};
use outport_source::Batch;

use crate::encoder::Encoder;

/// An encoder whose bytes are compressed.
pub struct Compressed {
    inner: Box<dyn Encoder>,
    compressor: Compressor,
    /// What is compressed next.
    plain: Vec<u8>,
}

enum Compressor {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl Compressed {
    /// One gzip member; no name or time in its header, so that equal rows are equal bytes.
    pub fn gzip(inner: Box<dyn Encoder>) -> Self {
        Self::new(
            inner,
            Compressor::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::default())),
        )
    }

    /// One Zstandard frame with a checksum of its content.
    pub fn zstd(inner: Box<dyn Encoder>) -> Result<Self, Failure> {
        let mut encoder = zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)
            .map_err(|error| failed(&error))?;
        encoder.include_checksum(true).map_err(|error| failed(&error))?;
        Ok(Self::new(inner, Compressor::Zstd(encoder)))
    }

    fn new(inner: Box<dyn Encoder>, compressor: Compressor) -> Self {
        Self { inner, compressor, plain: Vec::new() }
    }

    /// Compresses what the inner encoder has written; moves on what is ready.
    fn pass_on(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.compressor.write(&self.plain).map_err(|error| failed(&error))?;
        self.plain.clear();
        out.append(self.compressor.ready());
        Ok(())
    }
}

impl Encoder for Compressed {
    fn start(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.inner.start(&mut self.plain)?;
        self.pass_on(out)
    }

    fn rows_of(&mut self, batch: &Batch, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.inner.rows_of(batch, &mut self.plain)?;
        self.pass_on(out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        self.inner.finish(&mut self.plain)?;
        self.pass_on(out)?;
        self.compressor.end().map_err(|error| failed(&error))?;
        out.append(self.compressor.ready());
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.inner.rows()
    }

    fn warnings(&self) -> Warnings {
        self.inner.warnings()
    }
}

impl Compressor {
    fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(plain),
            Self::Zstd(encoder) => encoder.write_all(plain),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.try_finish(),
            Self::Zstd(encoder) => encoder.do_finish(),
        }
    }

    fn ready(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        }
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(FailureCode::Internal, format!("the file could not be compressed: {error}"))
}
