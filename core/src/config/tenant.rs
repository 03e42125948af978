//! The tenant's configuration: the types of its one JSON document.
//!
//! The published JSON Schema is made from these types, descriptions included: what stands here is what a tenant reads.

use super::choice::{Facts, Mismatch};
use crate::money::Micros;
use crate::policy::Route;
use crate::webhook::WebhookConfig;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Routes of a configuration at most, and of a report.
pub const ROUTES_MAX: u32 = 256;

/// The time over which a budget is counted, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// A calendar day.
    Day,
    /// A calendar month.
    #[default]
    Month,
}

/// Upper limit for what a tenant may hold and spend in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The limit, in micro-USD (1 USD is 1,000,000).
    pub limit_micros: Micros,
    /// The time over which it counts.
    #[serde(default)]
    pub period: Period,
}

/// A tenant's configuration. It takes effect with the next request; what runs goes on under the version that it was
/// admitted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfig {
    /// Routes in their order: the first that matches a request takes it.
    #[cfg_attr(feature = "schema", schemars(length(max = ROUTES_MAX)))]
    pub routes: Vec<Route>,
    /// Name of the route that takes what no route matches. Without one such a request is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<String>,
    /// Limit per period; none when absent: the granted credit is then the only limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Generations that may hold a concurrency slot at once.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100_000)))]
    pub concurrency: u32,
    /// Generations that may run on at once without any reader; none beyond `concurrency` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 100_000)))]
    pub detached_max: Option<u32>,
    /// Origins whose pages may use the API from a browser, as browsers write them: `https://app.example`. None by default.
    #[cfg_attr(feature = "schema", schemars(length(max = 64), extend("uniqueItems" = true)))]
    pub allowed_origins: Vec<String>,
    /// Where the tenant is told what became of its generations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookConfig>,
}

impl Default for TenantConfig {
    /// A tenant that has configured nothing: no route takes any request.
    fn default() -> Self {
        Self {
            routes: Vec::new(),
            default_route: None,
            budget: None,
            concurrency: 32,
            detached_max: None,
            allowed_origins: Vec::new(),
            webhook: None,
        }
    }
}

/// How a route came to take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// It is the first whose `match` takes the request.
    FirstMatch,
    /// No route matches, and it is the default route.
    Default,
}

impl TenantConfig {
    /// The route that takes a request: the first that matches, else the default route.
    #[must_use]
    pub fn choose(&self, request: &Facts<'_>) -> Option<(usize, &Route, ChosenBy)> {
        let matches = |(_, route): &(usize, &Route)| route.matches.mismatch(request).is_none();
        if let Some((index, route)) = self.routes.iter().enumerate().find(matches) {
            return Some((index, route, ChosenBy::FirstMatch));
        }
        let (index, route) = self.default_route_entry()?;
        Some((index, route, ChosenBy::Default))
    }

    /// What keeps the routes before `index` from taking a request, in their order.
    pub(super) fn passed_over<'a>(
        &'a self,
        index: usize,
        request: &'a Facts<'_>,
    ) -> impl Iterator<Item = (usize, &'a Route, Mismatch)> {
        let before = self.routes.iter().enumerate().take(index);
        before.filter_map(|(index, route)| Some((index, route, route.matches.mismatch(request)?)))
    }

    pub(super) fn default_route_entry(&self) -> Option<(usize, &Route)> {
        let name = self.default_route.as_deref()?;
        self.routes.iter().enumerate().find(|(_, route)| route.name == name)
    }
}
