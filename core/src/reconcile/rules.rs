//! The rules as data: what is shown, exported and compared with the documentation.

/// One rule of [`super::decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Its number, and its place: the first rule that matches decides.
    pub number: u8,
    /// When it matches, if none before it does.
    pub condition: &'static str,
    /// What is done.
    pub action: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

/// The rules of [`super::RULES_VERSION`], in their order.
pub const RULES: &[Rule] = &[
    Rule {
        number: 1,
        condition: "two pieces of evidence of the same rank differ",
        action: "`quarantine`; `escalate` above `escalate_above`",
        source: "seed 2, candidate row 6, recovery rows d and e",
    },
    Rule {
        number: 2,
        condition: "the driver shows life, or a newer attempt owns",
        action: "`defer` to the end of the lease",
        source: "seed 2, candidate row 2, recovery row c; invariant 4",
    },
    Rule {
        number: 3,
        condition: "the posting that resolves the hold is authored",
        action: "`defer`: the outbox repeats its delivery",
        source: "seed 2, candidate row 5, recovery row b",
    },
    Rule {
        number: 4,
        condition: "an authoritative completion, or exact usage of this attempt",
        action: "`finalize` from evidence",
        source: "seed 2, candidate rows 4 and 5, recovery row b",
    },
    Rule {
        number: 5,
        condition: "the first attempt was only prepared, its driver is fenced, and nothing says otherwise",
        action: "`release` as unexecuted",
        source: "seed 2, candidate row 3, recovery row a",
    },
    Rule {
        number: 6,
        condition: "the driver is silent and not fenced",
        action: "`defer`, and look up where the provider can be asked",
        source: "seed 2, candidate row 1",
    },
    Rule {
        number: 7,
        condition: "the deadline is not reached",
        action: "`defer`: by backoff to the next look-up where the provider can be asked, else to the deadline",
        source: "seed 2, recovery row a; seed 1, capability matrix",
    },
    Rule {
        number: 8,
        condition: "`on_interruption` is `retry`, attempts are left, the tenant extends the hold, and the provider does not say that it runs; or it is `quarantine`",
        action: "`retry`; or `quarantine`",
        source: "seed 2, recovery row a; invariant 12",
    },
    Rule {
        number: 9,
        condition: "the hold is above `escalate_above`",
        action: "`escalate`",
        source: "seed 2, recovery row e",
    },
    Rule {
        number: 10,
        condition: "the route has chosen `on_expiry`",
        action: "as chosen",
        source: "seed 1, leases and deadlines; design 7",
    },
    Rule {
        number: 11,
        condition: "anything else",
        action: "`finalize` by estimate where the work died with its socket, else `quarantine`",
        source: "design 7; seed 1, capability matrix",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places() {
        for (place, rule) in (1..).zip(RULES) {
            assert_eq!(rule.number, place, "{rule:?}");
        }
    }

    /// What is documented is what is exported.
    #[test]
    fn the_documentation_has_the_same_rows() {
        let mut table = String::from("//! | rule | when | then | source |\n//! |---|---|---|---|\n");
        for Rule { number, condition, action, source } in RULES {
            table.push_str(&format!("//! | {number} | {condition} | {action} | {source} |\n"));
        }
        // An empty comment line closes the table: it has these rows and no more.
        table.push_str("//!\n");
        assert!(include_str!("mod.rs").contains(&table), "the module's documentation should say:\n{table}");
    }
}
