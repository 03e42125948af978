//! Which route takes a request, and what kept the others from taking it.

use super::{ChosenBy, ConfigFault, Provider, TenantConfig};
use crate::economics::Workload;
use crate::policy::{OnDisconnect, Policies, resolve_on_disconnect};
use crate::refusal::Refusal;
use crate::request::Endpoint;
use crate::tenant::check_dialect;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What routes look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Request path.
    pub path: &'a str,
    /// Model as the client named it.
    pub model: &'a str,
    /// The request's `x-…` headers, names in lower case.
    pub headers: &'a BTreeMap<String, String>,
    /// The kind of work that the request says it is.
    pub workload: Option<Workload>,
}

/// The first part of a route's `match` that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum Mismatch {
    /// Another path.
    Path {
        /// What the route takes.
        wanted: String,
        /// What was asked for.
        found: String,
    },
    /// The model does not match the name or glob.
    Model {
        /// What the route takes.
        wanted: String,
        /// What was asked for.
        found: String,
    },
    /// A header is absent or has another value.
    Header {
        /// Its name.
        name: String,
        /// What the route takes.
        wanted: String,
        /// What was sent, if it was.
        found: Option<String>,
    },
    /// The request says another kind of work, or none.
    Workload {
        /// What the route takes.
        wanted: Workload,
        /// What was said, if anything was.
        found: Option<Workload>,
    },
}

/// A request to try a configuration with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrialRequest {
    /// Request path; `/v1/chat/completions` when absent.
    pub path: Option<String>,
    /// Model as the client would name it.
    pub model: String,
    /// Request headers; their names in any case.
    pub headers: BTreeMap<String, String>,
    /// `Holdfast-Workload`, if the client would send it.
    pub workload: Option<Workload>,
    /// `Holdfast-On-Disconnect`, if the client would send it.
    pub on_disconnect: Option<OnDisconnect>,
}

/// Longest path and longest model of a request that is tried, in bytes: every pattern of every route is held against them.
pub const TRIAL_MAX_BYTES: usize = 2_048;

impl TrialRequest {
    /// Refuses what is longer than any request's.
    ///
    /// # Errors
    /// [`Refusal::InvalidSetting`].
    pub fn check(&self) -> Result<(), Refusal> {
        let longest = self.model.len().max(self.path.as_ref().map_or(0, String::len));
        if longest <= TRIAL_MAX_BYTES {
            return Ok(());
        }
        let what = format!("`request`: `path` and `model` have at most {TRIAL_MAX_BYTES} bytes");
        Err(Refusal::InvalidSetting { what })
    }
}

/// A route that did not take the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PassedOver {
    /// Its place in `routes`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Why not.
    pub because: Mismatch,
}

/// The route that takes the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteChoice {
    /// Its place in `routes`.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// How it came to take it.
    pub by: ChosenBy,
    /// Who serves it.
    pub provider: String,
    /// What counts for the request, with what the route leaves out filled in and the request's own choice applied.
    pub policies: Policies,
}

/// Which route takes a request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteTrial {
    /// The route; none when the request would be refused with `no_route`.
    pub chosen: Option<RouteChoice>,
    /// The routes before it, each with what did not match; all routes when none was chosen or the default was.
    pub passed_over: Vec<PassedOver>,
    /// The stable code of the refusal that the request would get, if it would get one. Credit and slots are not looked at.
    pub refusal: Option<String>,
    /// That refusal in a sentence.
    pub detail: Option<String>,
}

/// What a document is worth: its faults, and what it would do with a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConfigCheck {
    /// What keeps it from being taken.
    pub errors: Vec<ConfigFault>,
    /// What works, and hardly as it was meant.
    pub warnings: Vec<ConfigFault>,
    /// Which route takes the request, if one was given. Left out where there are errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteTrial>,
}

/// Which route of a configuration takes a request, and why.
#[must_use]
pub fn try_route(config: &TenantConfig, providers: &[Provider], request: &TrialRequest) -> RouteTrial {
    let headers = request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    let path = request.path.as_deref().unwrap_or(Endpoint::ChatCompletions.pattern());
    let facts = Facts {
        path: Endpoint::pattern_of(path),
        model: &request.model,
        headers: &headers,
        workload: request.workload,
    };
    let chosen = config.choose(&facts);
    let before = match chosen {
        Some((index, _, ChosenBy::FirstMatch)) => index,
        _ => config.routes.len(),
    };
    let passed_over = config
        .passed_over(before, &facts)
        .map(|(index, route, because)| PassedOver { index, name: route.name.clone(), because })
        .collect();
    let outcome = match chosen {
        None => Err(Refusal::NoRoute),
        Some((_, route, _)) => served(route.policies(), &route.provider, providers, path, request),
    };
    let refusal = outcome.as_ref().err();
    RouteTrial {
        refusal: refusal.map(|refusal| refusal.code().to_string()),
        detail: refusal.map(Refusal::message),
        chosen: chosen.map(|(index, route, by)| RouteChoice {
            index,
            name: route.name.clone(),
            by,
            provider: route.provider.clone(),
            policies: outcome.unwrap_or_else(|_| route.policies()),
        }),
        passed_over,
    }
}

/// The policies that the request gets, as admission would decide.
fn served(
    policies: Policies,
    provider: &str,
    providers: &[Provider],
    path: &str,
    request: &TrialRequest,
) -> Result<Policies, Refusal> {
    let provider = super::provider_of(providers, provider)?;
    check_dialect(Endpoint::at(path), provider)?;
    let on_disconnect = resolve_on_disconnect(&policies, request.on_disconnect)?;
    match provider.prices.price_of(&request.model) {
        Some(_) => Ok(Policies { on_disconnect, ..policies }),
        None => Err(Refusal::ModelNotPriced { model: request.model.clone() }),
    }
}
