//! Meter of OpenAI Chat Completions and its relatives.
