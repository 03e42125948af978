//! The audit chain as `CloudEvents` 1.0, one JSON document a row: what an auditor keeps outside of the operator's reach.

use super::AuditRow;
use crate::ids::TenantId;
use crate::ledger::Posting;
use alloc::format;
use alloc::string::String;
use serde::Serialize;
use serde_json::value::RawValue;

/// Members of the envelope by their names in the standard; `sequence` is its extension for an order, `recordedtime` the
/// one for the moment of recording where `time` is that of the event.
#[derive(Serialize)]
struct Event<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    time: String,
    recordedtime: String,
    sequence: String,
    datacontenttype: &'static str,
    data: Data<'a>,
}

/// The row, and the posting in the very bytes that `payload_hash` stands for.
#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    row: &'a AuditRow,
    posting: &'a RawValue,
}

/// The event of a row with its stored posting; none when the posting cannot be read: the check names it.
#[must_use]
pub fn audit_event(tenant: &TenantId, row: &AuditRow, posting: &str) -> Option<String> {
    let decided: Posting = serde_json::from_str(posting).ok()?;
    let raw: &RawValue = serde_json::from_str(posting).ok()?;
    let event = Event {
        specversion: "1.0",
        id: format!("{tenant}:{}", row.seq),
        source: format!("/tenants/{tenant}/audit"),
        r#type: format!("dev.holdfast.ledger.{}", decided.kind.as_str()),
        subject: decided.reservation.as_ref().map(|reservation| String::from(reservation.as_str())),
        time: decided.decided_at.to_iso_8601(),
        recordedtime: row.at.to_iso_8601(),
        // Strings sort as the numbers do.
        sequence: format!("{:016}", row.seq),
        datacontenttype: "application/json",
        data: Data { row, posting: raw },
    };
    serde_json::to_string(&event).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{ChainHead, payload_hash};
    use crate::ledger::{PostingKind, ReasonCode};
    use crate::money::Micros;
    use crate::time::UnixMillis;

    /// The names are those of `CloudEvents` 1.0; the posting's bytes are those that were hashed.
    #[test]
    fn bytes_of_an_event_are_pinned() {
        let posting = Posting::new("g".into(), PostingKind::Grant, Micros::ZERO, ReasonCode::Granted, UnixMillis(1));
        let stored = serde_json::to_string(&posting).unwrap();
        let row = ChainHead::default().append(&posting, UnixMillis(1_500));
        let event = audit_event(&TenantId::parse("acme").unwrap(), &row, &stored).unwrap();
        let payload = payload_hash(stored.as_bytes());
        assert_eq!(row.payload_hash, payload);
        let hash = &row.hash;
        let expected = format!(
            r#"{{"specversion":"1.0","id":"acme:1","source":"/tenants/acme/audit","type":"dev.holdfast.ledger.grant","time":"1970-01-01T00:00:00.001Z","recordedtime":"1970-01-01T00:00:01.500Z","sequence":"0000000000000001","datacontenttype":"application/json","data":{{"seq":1,"at":1500,"posting_id":"g","payload_hash":"{payload}","prev_hash":"","hash":"{hash}","posting":{stored}}}}}"#
        );
        assert_eq!(event, expected);
        assert_eq!(audit_event(&TenantId::parse("acme").unwrap(), &row, "{}"), None);
    }
}
