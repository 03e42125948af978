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
    /// When the package is not installed, as with the others.
    #[must_use]
    pub fn node() -> Self {
        Self::of_npm("node", "openai", "openai.mjs")
    }

    /// The Responses API of npm `openai`.
    #[must_use]
    pub fn responses() -> Self {
        Self::of_npm("responses", "openai", "openai_responses.mjs")
    }

    /// npm `@anthropic-ai/sdk`.
    #[must_use]
    pub fn anthropic() -> Self {
        Self::of_npm("anthropic", "@anthropic-ai/sdk", "anthropic.mjs")
    }

    /// npm `@google/genai`.
    #[must_use]
    pub fn google() -> Self {
        Self::of_npm("google", "@google/genai", "google.mjs")
    }

    fn of_npm(name: &'static str, package: &str, script: &str) -> Self {
        let manifest = repository().join("node_modules").join(package).join("package.json");
        assert!(manifest.is_file(), "the npm package `{package}` is missing: run `npm ci`");
        Self { name, program: "node".into(), script: repository().join("tests/sdk").join(script) }
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
        self.run_repeating(base_url, key, model, 0)
    }

    /// [`Sdk::run`] with so many repeats by the SDK itself of what it takes for passing.
    ///
    /// # Panics
    /// When the script fails, or is not told of repeats.
    #[must_use]
    pub fn run_repeating(&self, base_url: &str, key: &str, model: &str, repeats: u32) -> Value {
        let mut command = Command::new(&self.program);
        command.arg(&self.script).args([base_url, key, model, &repeats.to_string()]).current_dir(repository());
        let ran = command.output();
        let output = ran.unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {}\n{err}", self.name, output.status);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{}: {error}: {out}\n{err}", self.name))
    }
}
