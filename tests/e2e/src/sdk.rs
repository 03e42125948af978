//! Runs the official SDKs, with only base URL and key changed. The scripts are in `tests/sdk`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::wait::shout;
use crate::world::repository;

/// The environment variable that names a Python interpreter with the package `openai`.
pub const PYTHON_VARIABLE: &str = "HOLDFAST_PYTHON";

/// One of the SDKs, with the program that runs it.
#[derive(Clone, Debug)]
pub struct Sdk {
    /// For messages.
    pub name: &'static str,
    program: PathBuf,
    script: PathBuf,
}

impl Sdk {
    /// npm `openai`.
    ///
    /// # Panics
    /// When the package is not installed.
    #[must_use]
    pub fn node() -> Self {
        let package = repository().join("node_modules/openai/package.json");
        assert!(package.is_file(), "the npm package `openai` is missing: run `npm ci`");
        Self { name: "node", program: "node".into(), script: repository().join("tests/sdk/openai.mjs") }
    }

    /// PyPI `openai`, where an interpreter is named. Says loudly if none is.
    #[must_use]
    pub fn python() -> Option<Self> {
        let Some(program) = std::env::var_os(PYTHON_VARIABLE) else {
            shout(&format!("SKIPPED: {PYTHON_VARIABLE} names no Python interpreter with the package `openai`"));
            return None;
        };
        let script = repository().join("tests/sdk/openai_sdk.py");
        Some(Self { name: "python", program: program.into(), script })
    }

    /// Streams and completes with a model, and returns what the SDK's user saw.
    ///
    /// # Panics
    /// When the script fails.
    #[must_use]
    pub fn run(&self, base_url: &str, key: &str, model: &str) -> Value {
        let mut command = Command::new(&self.program);
        command.arg(&self.script).args([base_url, key, model]).current_dir(repository());
        let ran = command.output();
        let output = ran.unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{err}", self.name, output.status);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{}: {error}: {out}\n{err}", self.name))
    }
}
