//! A tenant's document is read and judged: every fault at once, those of form by the schema, those of meaning here.

use super::choice::{ConfigCheck, TrialRequest, try_route};
use super::document::{Node, Place};
use super::fault::{ConfigFault, FaultCode, Faults};
use super::origin::is_loopback_origin;
use super::routes::RouteCheck;
use super::shape::Schema;
use super::version::etag_of;
use super::{Operator, TenantConfig};
use crate::glob::globs_meet;
use crate::origin::Origin;
use crate::webhook::check_url;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The published JSON Schema of a tenant's document. A test makes it from the types and compares.
pub const CONFIG_SCHEMA: &str = include_str!("../../../public/config.schema.json");

/// A document that can be served from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// What it says.
    pub config: TenantConfig,
    /// The document as it is stored and shown: as the tenant wrote it, without blanks, members sorted by name.
    pub document: String,
    /// Its entity tag, quotes included.
    pub etag: String,
}

/// A document that was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// What keeps it from being taken, in the order of the document's own form, then of its meaning.
    pub errors: Vec<ConfigFault>,
    /// What works, and hardly as it was meant.
    pub warnings: Vec<ConfigFault>,
    /// The document, unless there are errors.
    pub accepted: Option<Accepted>,
}

/// Reads a tenant's document and checks it against the operator's tables.
#[must_use]
pub fn read_config(text: &str, operator: &Operator<'_>) -> Reading {
    let document: Node = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => return refused(FaultCode::Malformed, format!("not JSON: {error}")),
    };
    let Ok(schema) = serde_json::from_str(CONFIG_SCHEMA).map(Schema::new) else {
        return refused(FaultCode::Malformed, "the schema of this version cannot be read".to_string());
    };
    let mut faults = Faults::new(&document);
    let repaired = schema.repaired(&document, &mut faults).into_value();
    // Its form is that of the schema, which is made from this very type.
    let config: TenantConfig = match serde_json::from_str(&repaired.to_string()) {
        Ok(config) => config,
        Err(error) => return refused(FaultCode::WrongType, error.to_string()),
    };
    check_meaning(&config, operator, &mut faults);
    let (errors, warnings) = faults.into_lists();
    let accepted = errors.is_empty().then(|| {
        let document = document.into_value().to_string();
        Accepted { config, etag: etag_of(&document), document }
    });
    Reading { errors, warnings, accepted }
}

/// Reads a document without taking it, and tells which route would take a request.
#[must_use]
pub fn check_config(text: &str, request: Option<&TrialRequest>, operator: &Operator<'_>) -> ConfigCheck {
    let Reading { errors, warnings, accepted } = read_config(text, operator);
    let providers = operator.providers;
    let route = accepted.zip(request).map(|(accepted, request)| try_route(&accepted.config, providers, request));
    ConfigCheck { errors, warnings, route }
}

fn refused(code: FaultCode, reason: String) -> Reading {
    let fault = ConfigFault { path: Place::default().to_string(), code, value: None, reason };
    Reading { errors: Vec::from([fault]), warnings: Vec::new(), accepted: None }
}

fn check_meaning(config: &TenantConfig, operator: &Operator<'_>, faults: &mut Faults<'_>) {
    let root = Place::default();
    let routes = root.member("routes");
    if config.routes.is_empty() {
        let reason = "there is no route: every request is refused".to_string();
        faults.warning(&routes, &[], FaultCode::NoEffect, reason);
    }
    for (index, route) in config.routes.iter().enumerate() {
        let check = RouteCheck { place: routes.item(index), route, policies: route.policies() };
        check.run(operator.providers, faults);
        let twin = config.routes.iter().take(index).position(|earlier| earlier.name == route.name);
        if let Some(twin) = twin {
            let place = check.place.member("name");
            let involved = [routes.item(twin).member("name")];
            faults.error(&place, &involved, FaultCode::Duplicate, format!("routes[{twin}] has this name already"));
        }
        let taken_by = config.routes.iter().take(index).position(|earlier| earlier.matches.covers(&route.matches));
        if let Some(earlier) = taken_by.filter(|_| config.default_route.as_deref() != Some(route.name.as_str())) {
            let involved = [routes.item(earlier).member("match"), check.place.member("match")];
            let reason = format!("never taken: routes[{earlier}] stands before it and matches all that it matches");
            faults.warning(&check.place, &involved, FaultCode::NoEffect, reason);
        }
    }
    check_default_route(config, faults);
    check_budget(config, operator, faults);
    check_origins(config, faults);
    if let Some(fault) = config.webhook.as_ref().and_then(|webhook| check_url(&webhook.url, operator.reach).err()) {
        let place = root.member("webhook").member("url");
        faults.error(&place, &[], FaultCode::Malformatted, fault.message().to_string());
    }
    let detached = config.detached_max.filter(|max| *max > config.concurrency);
    if let Some(max) = detached {
        let reason = format!("{max} is above `concurrency` ({}), which holds besides", config.concurrency);
        let involved = [root.member("concurrency")];
        faults.warning(&root.member("detached_max"), &involved, FaultCode::NoEffect, reason);
    }
}

fn check_default_route(config: &TenantConfig, faults: &mut Faults<'_>) {
    let Some(name) = config.default_route.as_deref() else { return };
    let root = Place::default();
    let (place, routes) = (root.member("default_route"), root.member("routes"));
    if config.default_route_entry().is_none() {
        faults.error(&place, &[routes], FaultCode::UnknownRoute, format!("no route is called `{name}`"));
        return;
    }
    let all = config.routes.iter().position(|route| route.matches.covers(&Default::default()));
    if let Some(index) = all {
        let reason = format!("never needed: routes[{index}] matches every request");
        faults.warning(&place, &[routes], FaultCode::NoEffect, reason);
    }
}

/// Seed 1's "temporary over-reservation": a hold is the worst case, and a period whose limit is below it takes no request
/// of that size.
fn check_budget(config: &TenantConfig, operator: &Operator<'_>, faults: &mut Faults<'_>) {
    let Some(budget) = config.budget else { return };
    let Operator { providers, limits, .. } = operator;
    let root = Place::default();
    let worst = |(index, route): (usize, &crate::policy::Route)| {
        let provider = providers.iter().find(|provider| provider.name == route.provider)?;
        let wanted = route.matches.model.as_deref().unwrap_or("*");
        let meets = |model: &str| globs_meet(wanted, model);
        let prices = provider.prices.models.iter().filter(|price| meets(&price.model));
        let costs = prices.filter_map(|price| price.worst_case(limits.body_max_bytes, route.max_output_tokens).ok());
        costs.max().map(|cost| (cost, index))
    };
    let dearest = config.routes.iter().enumerate().filter_map(worst).max();
    if let Some((cost, index)) = dearest.filter(|(cost, _)| *cost > budget.limit_micros) {
        let reason = format!(
            "one request of routes[{index}] may hold up to {} micro-USD (a body of {} bytes, all the output of one \
             choice): it would be refused",
            cost.get(),
            limits.body_max_bytes
        );
        let [limit, routes] = [root.member("budget").member("limit_micros"), root.member("routes").item(index)];
        faults.warning(&limit, &[routes], FaultCode::OverBudget, reason);
    }
}

fn check_origins(config: &TenantConfig, faults: &mut Faults<'_>) {
    let origins = Place::default().member("allowed_origins");
    for (index, origin) in config.allowed_origins.iter().enumerate() {
        let place = origins.item(index);
        if let Err(fault) = Origin::parse(origin) {
            let reason = format!("not an origin as browsers write it (`https://app.example`): {fault}");
            faults.error(&place, &[], FaultCode::Malformatted, reason);
        } else if origin.starts_with("http://") && !is_loopback_origin(origin) {
            let reason = "pages of an `http` origin can be altered on their way".to_string();
            faults.warning(&place, &[], FaultCode::Insecure, reason);
        }
    }
}
