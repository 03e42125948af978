//! Pages that name tests: the invariants of the crate's documentation and the list of faults. Whoever is named there
//! exists and runs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of all tests in these folders: functions behind `#[test]`, also those inside of `proptest!`.
fn tests(folders: &[&str]) -> BTreeSet<String> {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| sources(&crate_folder().join(folder), &mut files));
    let mut names = BTreeSet::new();
    for file in &files {
        for (at, _) in file.match_indices("#[test]") {
            let after = file.get(at..).unwrap();
            let name = after.split_once("fn ").unwrap().1.split_once('(').unwrap().0;
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn each_invariant_names_tests_that_exist() {
    let page = fs::read_to_string(crate_folder().join("src/lib.rs")).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let (tests, mut invariant) = (tests(&["tests", "src"]), 0);
    let mut named = vec![0; 13];
    for line in lines {
        if line.starts_with(&format!("{}. ", invariant + 1)) {
            invariant += 1;
        }
        let Some(list) = line.strip_prefix("Tests: ") else { continue };
        for name in list.split('`').skip(1).step_by(2) {
            assert!(tests.contains(name), "invariant {invariant}: there is no test `{name}`");
            named[invariant] += 1;
        }
    }
    assert_eq!(invariant, 12);
    assert!(named[1..].iter().all(|tests| *tests > 0), "an invariant without a test: {named:?}");
}

#[test]
fn each_fault_names_tests_that_exist() {
    let page = fs::read_to_string(crate_folder().join("../docs/faults.md")).unwrap();
    let tests = tests(&["tests", "src", "../tests", "../src", "../durable-objects/src"]);
    let mut numbers = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let (number, named) = (columns[1], columns[columns.len() - 2]);
        numbers.push(number.parse::<u32>().unwrap());
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "fault {number} names no test");
        for name in names {
            assert!(tests.contains(name), "fault {number}: there is no test `{name}`");
        }
    }
    assert_eq!(numbers, (1..=56).collect::<Vec<_>>());
}
