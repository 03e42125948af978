//! What is wrong with a tenant's document: where, what stands there, and why it cannot be.

use super::document::{Node, Place};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Faults of one kind that are told at most; a document with more is told about the first.
pub const FAULTS_MAX: usize = 100;

/// The kind of a fault; stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// Not JSON at all.
    Malformed,
    /// There is no member of this name.
    UnknownMember,
    /// A member that must be there is not.
    Missing,
    /// A value of the wrong type.
    WrongType,
    /// A number, a length or a count outside its bounds.
    OutOfRange,
    /// None of the words that may stand here.
    UnknownWord,
    /// A member, a name or an entry is given twice.
    Duplicate,
    /// Two settings contradict each other, or this version does not serve one.
    Contradiction,
    /// No provider of this name.
    UnknownProvider,
    /// No route of this name.
    UnknownRoute,
    /// The provider has no price for what the route takes.
    PriceMissing,
    /// Not what a path, a header, an origin or a URL looks like.
    Malformatted,
    /// Warning: it can never take effect.
    NoEffect,
    /// Warning: a result that nobody will find.
    NoHome,
    /// Warning: the budget does not allow it.
    OverBudget,
    /// Warning: it can be intercepted.
    Insecure,
}

/// One fault of a tenant's document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConfigFault {
    /// Where: `routes[2].grace_ms`, `routes[0].match.header["x-workload"]`; the whole document is `$`.
    pub path: String,
    /// The kind.
    pub code: FaultCode,
    /// What stands there, where that is a text (cut if it is long), a number or a boolean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Why it cannot be, for people.
    pub reason: String,
}

/// Faults as they are collected.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    document: &'a Node,
    errors: Vec<ConfigFault>,
    warnings: Vec<ConfigFault>,
    /// What is not known, because its value is faulty.
    unknown: Vec<Place>,
}

impl<'a> Faults<'a> {
    pub(super) const fn new(document: &'a Node) -> Self {
        Self { document, errors: Vec::new(), warnings: Vec::new(), unknown: Vec::new() }
    }

    /// A fault of form. What depends on this place is not judged.
    pub(super) fn form(&mut self, place: &Place, code: FaultCode, reason: String) {
        if self.errors.len() < FAULTS_MAX {
            self.errors.push(self.fault(place, code, reason));
        }
        self.unknown(place.clone());
    }

    /// What depends on this place is not judged.
    pub(super) fn unknown(&mut self, place: Place) {
        // Bounded as the faults are: a document that is as wrong as that gets no judgement worth having.
        if self.unknown.len() < FAULTS_MAX.saturating_mul(2) {
            self.unknown.push(place);
        }
    }

    /// A contradiction, unless what it was concluded from is faulty itself.
    pub(super) fn error(&mut self, place: &Place, involved: &[Place], code: FaultCode, reason: String) {
        if self.errors.len() < FAULTS_MAX && self.is_known(place, involved) {
            self.errors.push(self.fault(place, code, reason));
        }
    }

    /// Something that works, and hardly as it was meant; unless what it was concluded from is faulty itself.
    pub(super) fn warning(&mut self, place: &Place, involved: &[Place], code: FaultCode, reason: String) {
        if self.warnings.len() < FAULTS_MAX && self.is_known(place, involved) {
            self.warnings.push(self.fault(place, code, reason));
        }
    }

    /// Errors, then warnings.
    pub(super) fn into_lists(self) -> (Vec<ConfigFault>, Vec<ConfigFault>) {
        (self.errors, self.warnings)
    }

    fn is_known(&self, place: &Place, involved: &[Place]) -> bool {
        let involved = || core::iter::once(place).chain(involved);
        !self.unknown.iter().any(|unknown| involved().any(|place| place.overlaps(unknown)))
    }

    fn fault(&self, place: &Place, code: FaultCode, reason: String) -> ConfigFault {
        ConfigFault { path: place.to_string(), code, value: self.document.at(place).and_then(Node::shown), reason }
    }
}
