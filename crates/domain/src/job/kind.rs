//! What kind of work a job is.

/// What a worker makes of a job's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobKind {
    /// One resource into one file, or a split one.
    #[default]
    Export,
    /// Tables of several connections into one JSON result, asked for as of a Fetcher. Nobody is
    /// told but by `job.*`.
    Fetcher,
}

impl JobKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Export, Self::Fetcher];

    /// The name in the state database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Fetcher => "fetcher",
        }
    }

    /// The kind with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}
