//! What one route asks for, checked against what the platform, the provider and its own other settings allow.

use super::Provider;
use super::document::Place;
use super::fault::{FaultCode, Faults};
use crate::glob::glob_matches;
use crate::policy::{EDGE_DETACH_CEILING_MS, OnDisconnect, OnExpiry, OnInterruption, Owner, Policies, Route};
use crate::request::Endpoint;
use alloc::format;
use alloc::string::ToString;

/// One route with its place in the document.
pub(super) struct RouteCheck<'a> {
    pub(super) place: Place,
    pub(super) route: &'a Route,
    pub(super) policies: Policies,
}

/// Headers that carry keys take no part in routing.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

/// A longer header value takes no part in routing, in bytes.
const HEADER_VALUE_MAX_BYTES: usize = 256;

impl RouteCheck<'_> {
    pub(super) fn run(&self, providers: &[Provider], faults: &mut Faults<'_>) {
        self.name(faults);
        self.matches(faults);
        self.provider(providers, faults);
        self.edge(faults);
        self.background(providers, faults);
        self.disconnect(faults);
        self.deadlines(faults);
        self.interruption(faults);
        self.expiry(providers, faults);
    }

    fn error(&self, faults: &mut Faults<'_>, member: &str, involved: &[&str], code: FaultCode, reason: &str) {
        let involved: alloc::vec::Vec<_> = involved.iter().map(|name| self.place.member(name)).collect();
        faults.error(&self.place.member(member), &involved, code, reason.to_string());
    }

    fn warning(&self, faults: &mut Faults<'_>, member: &str, involved: &[&str], code: FaultCode, reason: &str) {
        let involved: alloc::vec::Vec<_> = involved.iter().map(|name| self.place.member(name)).collect();
        faults.warning(&self.place.member(member), &involved, code, reason.to_string());
    }

    fn name(&self, faults: &mut Faults<'_>) {
        if self.route.name.chars().any(char::is_control) {
            self.error(faults, "name", &[], FaultCode::Malformatted, "must have no control characters");
        }
    }

    fn matches(&self, faults: &mut Faults<'_>) {
        let place = self.place.member("match");
        let matches = &self.route.matches;
        if matches.path.as_deref().is_some_and(|path| !is_path(path)) {
            let reason = "must be a path: `/`, then visible ASCII without `?` and `#`";
            faults.error(&place.member("path"), &[], FaultCode::Malformatted, reason.to_string());
        }
        for (name, value) in &matches.header {
            let at = place.member("header").member(name);
            if let Some(reason) = header_fault(name, value) {
                faults.error(&at, &[], FaultCode::Malformatted, reason.to_string());
            }
        }
        let differ = self.route.workload.zip(matches.workload).is_some_and(|(own, wanted)| own != wanted);
        if differ {
            let reason = "the route takes another kind of work (`match.workload`) than it is set up for";
            self.warning(faults, "workload", &["match"], FaultCode::NoEffect, reason);
        }
    }

    fn provider(&self, providers: &[Provider], faults: &mut Faults<'_>) {
        let name = self.route.provider.as_str();
        let Some(provider) = providers.iter().find(|provider| provider.name == name) else {
            self.error(faults, "provider", &[], FaultCode::UnknownProvider, &format!("no provider is called `{name}`"));
            return;
        };
        let glob = self.route.matches.model.as_deref().unwrap_or("*");
        self.dialect(provider, faults);
        let priced = provider.prices.models.iter().any(|price| glob_matches(&price.model, glob));
        if priced {
            return;
        }
        let model = self.place.member("match").member("model");
        let involved = [self.place.member("provider")];
        if glob.contains('*') {
            let reason = format!(
                "no single price of provider `{name}` is for all that it takes: models without a price are refused"
            );
            faults.warning(&model, &involved, FaultCode::PriceMissing, reason);
        } else {
            let reason = format!("provider `{name}` has no price for this model: its cost cannot be held");
            faults.error(&model, &involved, FaultCode::PriceMissing, reason);
        }
    }

    /// A route whose path the provider does not speak refuses every request that it takes.
    fn dialect(&self, provider: &Provider, faults: &mut Faults<'_>) {
        let Some(path) = self.route.matches.path.as_deref() else { return };
        let at = self.place.member("match").member("path");
        let Some(endpoint) = Endpoint::at(path) else {
            let served = Endpoint::ALL.map(Endpoint::pattern).join(", ");
            let reason = format!("nothing is served at this path: no request matches. Served are {served}");
            faults.warning(&at, &[], FaultCode::NoEffect, reason);
            return;
        };
        if endpoint.pattern() != path {
            let reason = format!("requests match `{}`: name the model in `match.model`", endpoint.pattern());
            faults.warning(&at, &[], FaultCode::NoEffect, reason);
        }
        if !endpoint.is_spoken_by(provider.dialect) {
            let reason = format!(
                "every request is refused: the path is for clients of `{}`, and provider `{}` speaks `{}`",
                endpoint.dialect().name(),
                provider.name,
                provider.dialect.name()
            );
            faults.warning(&at, &[self.place.member("provider")], FaultCode::NoEffect, reason);
        }
    }

    /// Design 4.4: no grace on this owner, and the platform stops its work half a minute after the client has left.
    fn edge(&self, faults: &mut Faults<'_>) {
        if self.route.owner != Owner::Edge {
            return;
        }
        if self.route.grace_ms.is_some_and(|grace_ms| grace_ms > 0) {
            let reason = "owner `edge` has no grace: its one client cannot come back to a running stream";
            self.error(faults, "grace_ms", &["owner"], FaultCode::Contradiction, reason);
        }
        if self.policies.is_above_edge_ceiling() {
            let reason = format!(
                "owner `edge` may detach here, and the platform carries its work no further than {EDGE_DETACH_CEILING_MS} \
                 ms after the client has left: at most {EDGE_DETACH_CEILING_MS}, or `cancel` with `allow_override` `false`"
            );
            let involved = ["owner", "on_disconnect", "allow_override", "workload", "match"];
            self.error(faults, "total_ms", &involved, FaultCode::Contradiction, &reason);
        }
    }

    /// Design 4.4 and 4: only the object takes a stream up again, and only one dialect has operations that outlive it.
    fn background(&self, providers: &[Provider], faults: &mut Faults<'_>) {
        if !self.route.background {
            return;
        }
        if self.route.owner == Owner::Edge {
            let reason = "owner `edge` cannot take the stream of a background operation up again: `object` can";
            self.error(faults, "background", &["owner"], FaultCode::Contradiction, reason);
        }
        let provider = providers.iter().find(|provider| provider.name == self.route.provider);
        if let Some(provider) = provider.filter(|provider| !provider.dialect.has_background()) {
            let reason = format!("dialect `{}` of this provider has no background operations", provider.dialect.name());
            self.error(faults, "background", &["provider"], FaultCode::Contradiction, &reason);
        }
    }

    fn disconnect(&self, faults: &mut Faults<'_>) {
        let Policies { on_disconnect, allow_override, artifact, .. } = self.policies;
        if on_disconnect == OnDisconnect::Detach && artifact.has_home != Some(true) {
            // Seed 4: "a finished answer nobody can navigate back to is the same as no answer with a bill attached".
            let reason = "`detach` pays for answers that nobody waits for: say with `artifact.has_home` `true` that the \
                          product has a place that leads back to them";
            self.warning(faults, "on_disconnect", &["artifact"], FaultCode::NoHome, reason);
        }
        if on_disconnect == OnDisconnect::Detach && self.policies.retention_s == 0 {
            let reason = "a detached answer is deleted at its end: nobody can read it";
            self.warning(faults, "retention_s", &["on_disconnect"], FaultCode::NoHome, reason);
        }
        let grace_given = self.route.grace_ms.is_some_and(|grace_ms| grace_ms > 0);
        if grace_given && on_disconnect == OnDisconnect::Detach && !allow_override {
            let reason = "`detach` waits for nobody: the grace belongs to `cancel`";
            let involved = ["on_disconnect", "allow_override", "owner"];
            self.warning(faults, "grace_ms", &involved, FaultCode::NoEffect, reason);
        }
    }

    fn deadlines(&self, faults: &mut Faults<'_>) {
        let total_ms = self.policies.total_ms;
        let above = |value: Option<u64>| value.is_some_and(|value| value > total_ms);
        let involved = ["total_ms", "workload", "match"];
        if above(self.route.first_byte_ms) {
            let reason = format!("can never be reached: the generation has ended after `total_ms` ({total_ms})");
            self.error(faults, "first_byte_ms", &involved, FaultCode::Contradiction, &reason);
        }
        if above(self.route.idle_ms) {
            let reason = format!("can never be reached: the generation has ended after `total_ms` ({total_ms})");
            self.error(faults, "idle_ms", &involved, FaultCode::Contradiction, &reason);
        }
        if above(self.route.expected_ms) {
            let reason = format!("a normal generation would be stopped by `total_ms` ({total_ms})");
            self.error(faults, "expected_ms", &involved, FaultCode::Contradiction, &reason);
        }
        if above(self.route.grace_ms) {
            let reason = format!("never over: the generation has ended after `total_ms` ({total_ms})");
            self.warning(faults, "grace_ms", &involved, FaultCode::NoEffect, &reason);
        }
    }

    fn interruption(&self, faults: &mut Faults<'_>) {
        if self.policies.on_interruption != OnInterruption::Retry {
            return;
        }
        let reason = if !self.policies.workload.may_repeat() {
            "an agentic call is never repeated by itself: the first one may have had effects"
        } else if self.policies.owner == Owner::Edge {
            "a retry needs the request's body, which owner `edge` does not store"
        } else {
            return;
        };
        self.error(faults, "on_interruption", &["workload", "match", "owner"], FaultCode::Contradiction, reason);
    }

    fn expiry(&self, providers: &[Provider], faults: &mut Faults<'_>) {
        let watches = self.policies.on_expiry.credit == Some(OnExpiry::ExpireAndWatch);
        if !watches {
            if self.route.watch_ms.is_some_and(|watch_ms| watch_ms > 0) {
                let reason = "only `on_expiry.credit` `expire_and_watch` watches";
                self.warning(faults, "watch_ms", &["on_expiry"], FaultCode::NoEffect, reason);
            }
            return;
        }
        if self.policies.watch_ms == 0 {
            let reason = "`expire_and_watch` needs a time to watch for: above 0, or `release`";
            self.error(faults, "watch_ms", &["on_expiry"], FaultCode::Contradiction, reason);
        }
        let provider = providers.iter().find(|provider| provider.name == self.route.provider);
        // A request may ask for the background by itself.
        let capabilities = provider.map(|provider| provider.capabilities_for(true));
        if capabilities.is_some_and(|capabilities| !capabilities.status && !capabilities.callback) {
            let place = self.place.member("on_expiry").member("credit");
            let reason = "this provider can neither be asked nor calls back: there is nothing to watch".to_string();
            faults.warning(&place, &self.place.members(["provider"]), FaultCode::NoEffect, reason);
        }
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#')
}

fn header_fault(name: &str, value: &str) -> Option<&'static str> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if !name.starts_with("x-") || !plain {
        Some("routes match headers whose names begin with `x-`, in lower case")
    } else if KEY_HEADERS.contains(&name) {
        Some("this header carries a key: it takes no part in routing")
    } else if value.len() > HEADER_VALUE_MAX_BYTES {
        Some("a value of more than 256 bytes takes no part in routing")
    } else {
        None
    }
}
