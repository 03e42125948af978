//! Which handler takes a request.

use crate::accounts::{self, Actor};
use crate::admin::{self, AdminPath};
use crate::books::{self, BooksPath};
use crate::caller::PageAsks;
use crate::configuration::{self, ConfigPath};
use crate::cors::{self, Page};
use crate::error::EdgeError;
use crate::respond::{self, ErrorForm};
use crate::webhooks::{self, WebhookPath};
use crate::{balance, callbacks, generations, healthz, policy_report, proxy, tokens};
use futures::FutureExt;
use holdfast_core::refusal::Refusal;
use holdfast_core::request::Endpoint as Served;
use holdfast_objects::settings;
use std::panic::AssertUnwindSafe;
use worker::{Context, Env, Request, Response};

/// Name of the binding of the static assets.
const ASSETS: &str = "ASSETS";

/// What tenants use: their keys and tokens, and the pages that they allow.
const TENANTS_PREFIXES: [&str; 2] = ["/v1/", "/v1beta/"];

/// Below these, nothing is a static asset.
const API_PREFIXES: [&str; 4] = ["/v1/", "/v1beta/", "/admin/", "/__test/"];

/// A path that has a handler. Ids are as the caller wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint<'a> {
    Admin(AdminPath<'a>),
    Balance,
    Books(BooksPath),
    Callback(&'a str, &'a str),
    Config(ConfigPath<'a>),
    Generation(&'a str),
    GenerationCancel(&'a str),
    GenerationResult(&'a str),
    GenerationStream(&'a str),
    Generations,
    Healthz,
    Key(&'a str),
    Keys,
    Policy,
    Proxied(Served),
    Token(&'a str),
    Tokens,
    Webhook(WebhookPath<'a>),
    #[cfg(feature = "test-hooks")]
    TestCalls,
    #[cfg(feature = "test-hooks")]
    TestPanic,
    #[cfg(feature = "test-hooks")]
    TestPanicObject(&'a str),
    #[cfg(feature = "test-hooks")]
    TestWriteFault(&'a str),
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination<'a> {
    Endpoint(Endpoint<'a>),
    WrongMethod(Endpoint<'a>),
    Asset,
    Nowhere,
}

impl<'a> Endpoint<'a> {
    fn at(path: &'a str) -> Option<Self> {
        match path {
            "/v1/balance" => Some(Self::Balance),
            "/v1/keys" => Some(Self::Keys),
            "/v1/generations" => Some(Self::Generations),
            "/v1/audit" => Some(Self::Books(BooksPath::Audit)),
            "/v1/ledger" => Some(Self::Books(BooksPath::Ledger)),
            "/v1/ledger/check" => Some(Self::Books(BooksPath::Check)),
            "/v1/usage" => Some(Self::Books(BooksPath::Usage)),
            "/v1/usage/lines" => Some(Self::Books(BooksPath::Lines)),
            "/v1/usage/records" => Some(Self::Books(BooksPath::Records)),
            "/v1/policy" => Some(Self::Policy),
            "/v1/tokens" => Some(Self::Tokens),
            "/healthz" => Some(Self::Healthz),
            #[cfg(feature = "test-hooks")]
            "/__test/calls" => Some(Self::TestCalls),
            #[cfg(feature = "test-hooks")]
            "/__test/panic" => Some(Self::TestPanic),
            _ => Served::at(path).map(Self::Proxied).or_else(|| Self::with_id(path)),
        }
    }

    fn with_id(path: &'a str) -> Option<Self> {
        #[cfg(feature = "test-hooks")]
        if let Some(id) = path.strip_prefix("/__test/panic-object/") {
            return Some(Self::TestPanicObject(id));
        }
        #[cfg(feature = "test-hooks")]
        if let Some(fault) = path.strip_prefix("/__test/write-fault/") {
            return Some(Self::TestWriteFault(fault));
        }
        if let Some(rest) = path.strip_prefix("/admin/") {
            return AdminPath::at(rest).map(Self::Admin);
        }
        if let Some(rest) = path.strip_prefix("/v1/config") {
            return ConfigPath::at(rest).map(Self::Config);
        }
        if let Some(rest) = path.strip_prefix("/v1/webhook") {
            return WebhookPath::at(rest).map(Self::Webhook);
        }
        if let Some(rest) = path.strip_prefix("/v1/callbacks/") {
            let (tenant, provider) = rest.split_once('/')?;
            return Some(Self::Callback(tenant, provider)).filter(|_| !provider.contains('/'));
        }
        if let Some(id) = path.strip_prefix("/v1/keys/") {
            return Some(Self::Key(id)).filter(|_| !id.contains('/'));
        }
        if let Some(id) = path.strip_prefix("/v1/tokens/") {
            return Some(Self::Token(id)).filter(|_| !id.is_empty() && !id.contains('/'));
        }
        let rest = path.strip_prefix("/v1/generations/")?;
        match rest.split_once('/') {
            None => Some(Self::Generation(rest)),
            Some((id, "cancel")) => Some(Self::GenerationCancel(id)),
            Some((id, "result")) => Some(Self::GenerationResult(id)),
            Some((id, "stream")) => Some(Self::GenerationStream(id)),
            Some(_) => None,
        }
    }

    const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Admin(path) => path.methods(),
            Self::Callback(..) | Self::Proxied(_) | Self::GenerationCancel(_) => &["POST"],
            Self::Config(path) => path.methods(),
            Self::Key(_) | Self::Token(_) => &["DELETE"],
            Self::Keys | Self::Tokens => &["GET", "POST"],
            Self::Webhook(path) => path.methods(),
            #[cfg(feature = "test-hooks")]
            Self::TestPanic | Self::TestPanicObject(_) | Self::TestWriteFault(_) => &["POST"],
            _ => &["GET"],
        }
    }

    /// Whether a page of another origin may ask, if the tenant allows it. Such an endpoint has the origin checked with
    /// the key, by [`crate::caller::Bearer::ask`], before it answers anything but an error.
    const fn serves_pages(self) -> bool {
        matches!(
            self,
            Self::Balance
                | Self::Generations
                | Self::Generation(_)
                | Self::GenerationCancel(_)
                | Self::GenerationResult(_)
                | Self::GenerationStream(_)
                | Self::Proxied(_)
                | Self::Token(_)
                | Self::Tokens
        )
    }

    /// Probes may ask for the health's head alone; the platform leaves the body out.
    fn takes(self, method: &str) -> bool {
        self.methods().contains(&method) || (self == Self::Healthz && method == "HEAD")
    }
}

impl<'a> Destination<'a> {
    fn of(method: &str, path: &'a str) -> Self {
        match Endpoint::at(path) {
            Some(endpoint) if endpoint.takes(method) => Self::Endpoint(endpoint),
            Some(endpoint) => Self::WrongMethod(endpoint),
            None if API_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) => Self::Nowhere,
            None if matches!(method, "GET" | "HEAD") => Self::Asset,
            None => Self::Nowhere,
        }
    }

    const fn error_form(self) -> ErrorForm {
        match self {
            Self::Endpoint(Endpoint::Proxied(served)) | Self::WrongMethod(Endpoint::Proxied(served)) => {
                ErrorForm::Envelope(served.dialect())
            }
            _ => ErrorForm::Problem,
        }
    }

    fn error(self, error: &EdgeError) -> Response {
        respond::error(self.error_form(), error)
    }

    const fn serves_pages(self) -> bool {
        matches!(self, Self::Endpoint(endpoint) if endpoint.serves_pages())
    }
}

/// Serves a request. Errors and panics become responses.
pub(crate) async fn handle(request: Request, env: &Env, context: &Context) -> Response {
    // Not `Request::method`: it takes a method that it does not know for GET.
    let (method, path) = (request.inner().method(), request.path());
    let destination = Destination::of(&method, &path);
    if !TENANTS_PREFIXES.iter().any(|prefix| path.starts_with(prefix)) {
        return answer(destination, request, env, context).await.unwrap_or_else(|error| destination.error(&error));
    }
    if let Some(headers) = cors::preflight(&method, request.headers()) {
        return respond::no_content(&headers);
    }
    let page = Page::of(&request);
    let asks = (page != Page::Own && destination.serves_pages()).then(|| PageAsks::of(env, &request));
    let answer = match destination {
        Destination::Endpoint(endpoint) if page != Page::Own && !endpoint.serves_pages() => {
            Err(Refusal::OriginNotAllowed.into())
        }
        _ => answer(destination, request, env, context).await,
    };
    let readable = match (&asks, &answer) {
        (None, _) => false,
        (Some(asks), Err(_)) if !cors::may_read(&answer) => asks.may_read_errors(env).await,
        (Some(_), _) => cors::may_read(&answer),
    };
    let response = answer.unwrap_or_else(|error| destination.error(&error));
    match page {
        Page::Own => response,
        Page::Of(origin) => cors::mark(response, Some(&origin).filter(|_| readable)),
        Page::Nameless => cors::mark(response, None),
    }
}

async fn answer(
    destination: Destination<'_>,
    request: Request,
    env: &Env,
    context: &Context,
) -> Result<Response, EdgeError> {
    let served = AssertUnwindSafe(dispatch(destination, request, env, context)).catch_unwind().await;
    served.unwrap_or(Err(EdgeError::Internal))
}

async fn dispatch(
    destination: Destination<'_>,
    request: Request,
    env: &Env,
    context: &Context,
) -> Result<Response, EdgeError> {
    match destination {
        Destination::Endpoint(endpoint) => serve(endpoint, request, env, context).await,
        Destination::WrongMethod(endpoint) => Err(EdgeError::MethodNotAllowed { allow: endpoint.methods() }),
        Destination::Asset => asset(request, env).await,
        Destination::Nowhere => Err(EdgeError::UnknownPath),
    }
}

async fn serve(endpoint: Endpoint<'_>, request: Request, env: &Env, context: &Context) -> Result<Response, EdgeError> {
    if endpoint != Endpoint::Healthz {
        settings::check_operator_key(env)?;
    }
    let reads = request.inner().method() == "GET";
    match endpoint {
        Endpoint::Admin(path) => admin::serve(path, request, env).await,
        Endpoint::Config(path) => configuration::serve(path, &Actor::of_key(&request, env)?, request, env).await,
        Endpoint::Key(id) => accounts::revoke_key(&Actor::of_key(&request, env)?, env, id).await,
        Endpoint::Keys if reads => accounts::list_keys(&Actor::of_key(&request, env)?, env).await,
        Endpoint::Keys => accounts::issue_key(&Actor::of_key(&request, env)?, request, env).await,
        Endpoint::Token(id) => tokens::revoke(&request, env, id).await,
        Endpoint::Tokens if reads => tokens::list(&request, env).await,
        Endpoint::Tokens => tokens::mint(request, env).await,
        Endpoint::Webhook(path) => webhooks::serve(path, &request, env).await,
        Endpoint::Balance => balance::show(&request, env).await,
        Endpoint::Books(path) => books::serve(path, &request, env).await,
        Endpoint::Callback(tenant, provider) => callbacks::take(tenant, provider, request, env).await,
        Endpoint::Proxied(served) => proxy::serve(served, request, env, context).await,
        Endpoint::Generations => generations::list(&request, env).await,
        Endpoint::Generation(id) => generations::show(&request, env, id).await,
        Endpoint::GenerationCancel(id) => generations::cancel(&request, env, id).await,
        Endpoint::GenerationResult(id) => generations::result(&request, env, id).await,
        Endpoint::GenerationStream(id) => generations::stream(&request, env, id).await,
        Endpoint::Healthz => healthz::check(env),
        Endpoint::Policy => policy_report::show(&request, env).await,
        #[cfg(feature = "test-hooks")]
        Endpoint::TestCalls => respond::ok(&holdfast_objects::test_hooks::calls()),
        #[cfg(feature = "test-hooks")]
        Endpoint::TestPanic => crate::test_hooks::panic_here(),
        #[cfg(feature = "test-hooks")]
        Endpoint::TestPanicObject(id) => crate::test_hooks::panic_object(&request, env, id).await,
        #[cfg(feature = "test-hooks")]
        Endpoint::TestWriteFault(fault) => crate::test_hooks::arm_write_fault(fault),
    }
}

async fn asset(request: Request, env: &Env) -> Result<Response, EdgeError> {
    if request.url().is_err() || !names_a_path(&request.inner().url()) {
        return Err(EdgeError::invalid("its target is not a path"));
    }
    let assets = env.assets(ASSETS).map_err(|_| EdgeError::UnknownPath)?;
    Ok(assets.fetch_request(request).await?)
}

/// Whether a path follows the host. The platform puts scheme and host before whatever the request's target is: `GET *`
/// comes as `http://host*`, which some parsers take for a host and the assets for a fault of ours.
fn names_a_path(url: &str) -> bool {
    let after_scheme = url.split_once("://").map(|(_, rest)| rest);
    let delimiter = after_scheme.and_then(|rest| rest.chars().find(|letter| matches!(letter, '/' | '?' | '#')));
    delimiter == Some('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::dialect::Dialect;

    #[test]
    fn paths_and_methods() {
        use Destination::{Asset, Nowhere, WrongMethod};
        let to = Destination::Endpoint;
        for (method, path, expected) in [
            ("POST", "/v1/chat/completions", to(Endpoint::Proxied(Served::ChatCompletions))),
            ("GET", "/v1/chat/completions", WrongMethod(Endpoint::Proxied(Served::ChatCompletions))),
            ("POST", "/v1/chat/completions/", Nowhere),
            ("POST", "/v1/completions", to(Endpoint::Proxied(Served::Completions))),
            ("POST", "/v1/embeddings", to(Endpoint::Proxied(Served::Embeddings))),
            ("POST", "/v1/responses", to(Endpoint::Proxied(Served::Responses))),
            ("GET", "/v1/responses/resp_1", Nowhere),
            ("POST", "/v1/messages", to(Endpoint::Proxied(Served::Messages))),
            ("POST", "/v1/messages/count_tokens", Nowhere),
            ("POST", "/v1beta/models/m:generateContent", to(Endpoint::Proxied(Served::GenerateContent))),
            ("POST", "/v1beta/models/m:streamGenerateContent", to(Endpoint::Proxied(Served::StreamGenerateContent))),
            ("GET", "/v1beta/models/m:generateContent", WrongMethod(Endpoint::Proxied(Served::GenerateContent))),
            ("POST", "/v1beta/models/m:countTokens", Nowhere),
            ("GET", "/v1beta/models", Nowhere),
            ("GET", "/v1/generations", to(Endpoint::Generations)),
            ("POST", "/v1/generations", WrongMethod(Endpoint::Generations)),
            ("GET", "/v1/generations/", to(Endpoint::Generation(""))),
            ("GET", "/v1/generations/gen_1", to(Endpoint::Generation("gen_1"))),
            ("HEAD", "/v1/generations/gen_1", WrongMethod(Endpoint::Generation("gen_1"))),
            ("GET", "/v1/generations/gen_1/stream", to(Endpoint::GenerationStream("gen_1"))),
            ("GET", "/v1/generations/gen_1/result", to(Endpoint::GenerationResult("gen_1"))),
            ("POST", "/v1/generations/gen_1/cancel", to(Endpoint::GenerationCancel("gen_1"))),
            ("GET", "/v1/generations/gen_1/cancel", WrongMethod(Endpoint::GenerationCancel("gen_1"))),
            ("GET", "/v1/generations/gen_1/other", Nowhere),
            ("GET", "/v1/generations/gen_1/stream/x", Nowhere),
            ("GET", "/v1/balance", to(Endpoint::Balance)),
            ("GET", "/v1/audit", to(Endpoint::Books(BooksPath::Audit))),
            ("GET", "/v1/ledger", to(Endpoint::Books(BooksPath::Ledger))),
            ("GET", "/v1/ledger/check", to(Endpoint::Books(BooksPath::Check))),
            ("POST", "/v1/ledger/check", WrongMethod(Endpoint::Books(BooksPath::Check))),
            ("GET", "/v1/ledger/other", Nowhere),
            ("GET", "/v1/usage", to(Endpoint::Books(BooksPath::Usage))),
            ("GET", "/v1/usage/lines", to(Endpoint::Books(BooksPath::Lines))),
            ("GET", "/v1/usage/records", to(Endpoint::Books(BooksPath::Records))),
            ("DELETE", "/v1/balance", WrongMethod(Endpoint::Balance)),
            ("POST", "/v1/keys", to(Endpoint::Keys)),
            ("POST", "/v1/tokens", to(Endpoint::Tokens)),
            ("GET", "/v1/tokens", to(Endpoint::Tokens)),
            ("PUT", "/v1/tokens", WrongMethod(Endpoint::Tokens)),
            ("DELETE", "/v1/tokens/tok_1", to(Endpoint::Token("tok_1"))),
            ("GET", "/v1/tokens/tok_1", WrongMethod(Endpoint::Token("tok_1"))),
            ("DELETE", "/v1/tokens/a/b", Nowhere),
            ("POST", "/v1/tokens/", Nowhere),
            ("DELETE", "/v1/keys/key_1", to(Endpoint::Key("key_1"))),
            ("GET", "/v1/keys/key_1", WrongMethod(Endpoint::Key("key_1"))),
            ("DELETE", "/v1/keys/key_1/x", Nowhere),
            ("GET", "/v1/webhook", to(Endpoint::Webhook(WebhookPath::Show))),
            ("GET", "/v1/webhook/rotate", WrongMethod(Endpoint::Webhook(WebhookPath::Rotate))),
            ("GET", "/v1/webhooks", Nowhere),
            ("POST", "/v1/callbacks/acme/openai", to(Endpoint::Callback("acme", "openai"))),
            ("GET", "/v1/callbacks/acme/openai", WrongMethod(Endpoint::Callback("acme", "openai"))),
            ("POST", "/v1/callbacks/acme", Nowhere),
            ("POST", "/v1/callbacks/acme/openai/x", Nowhere),
            ("POST", "/admin/sweep", to(Endpoint::Admin(AdminPath::Sweep))),
            ("GET", "/v1/policy", to(Endpoint::Policy)),
            ("PUT", "/v1/policy", WrongMethod(Endpoint::Policy)),
            ("PUT", "/v1/config", to(Endpoint::Config(ConfigPath::Document))),
            ("GET", "/v1/config/versions", to(Endpoint::Config(ConfigPath::Versions))),
            ("POST", "/v1/config/check", to(Endpoint::Config(ConfigPath::Check))),
            ("PUT", "/v1/config/check", WrongMethod(Endpoint::Config(ConfigPath::Check))),
            ("GET", "/v1/configuration", Nowhere),
            ("GET", "/config.schema.json", Asset),
            ("POST", "/admin/tenants", to(Endpoint::Admin(AdminPath::Tenants))),
            ("DELETE", "/admin/tenants", WrongMethod(Endpoint::Admin(AdminPath::Tenants))),
            ("GET", "/admin/other", Nowhere),
            ("GET", "/healthz", to(Endpoint::Healthz)),
            ("HEAD", "/healthz", to(Endpoint::Healthz)),
            ("POST", "/healthz", WrongMethod(Endpoint::Healthz)),
            ("GET", "/v1/unknown", Nowhere),
            ("GET", "/", Asset),
            ("HEAD", "/demo.js", Asset),
            ("GET", "/v1", Asset),
            ("POST", "/", Nowhere),
            ("PROPFIND", "/", Nowhere),
        ] {
            assert_eq!(Destination::of(method, path), expected, "{method} {path}");
        }
    }

    /// Whoever adds an endpoint decides whether other pages may ask: not by default.
    #[test]
    fn what_other_pages_may_ask() {
        let serves = |method, path| Destination::of(method, path).serves_pages();
        for (method, path) in [
            ("POST", "/v1/chat/completions"),
            ("GET", "/v1/generations"),
            ("GET", "/v1/generations/gen_1/stream"),
            ("POST", "/v1/generations/gen_1/cancel"),
            ("GET", "/v1/balance"),
            ("GET", "/v1/tokens"),
            ("POST", "/v1/tokens"),
            ("DELETE", "/v1/tokens/tok_1"),
        ] {
            assert!(serves(method, path), "{path}");
        }
        for (method, path) in [
            ("GET", "/v1/config"),
            ("PUT", "/v1/config"),
            ("POST", "/v1/keys"),
            ("DELETE", "/v1/keys/key_1"),
            ("GET", "/admin/tenants"),
            ("GET", "/healthz"),
            ("PUT", "/v1/tokens"),
            ("GET", "/v1/unknown"),
            ("GET", "/"),
        ] {
            assert!(!serves(method, path), "{path}");
        }
    }

    #[test]
    fn targets_without_a_path() {
        for good in ["https://edge.example/", "http://127.0.0.1:8787/demo.js?x=1"] {
            assert!(names_a_path(good), "{good}");
        }
        for bad in ["http://a*", "http://127.0.0.1:8787*", "http://a*?x=/", "http://a", "*", ""] {
            assert!(!names_a_path(bad), "{bad}");
        }
    }

    #[test]
    fn only_proxied_paths_answer_in_an_envelope() {
        let form = |method, path| Destination::of(method, path).error_form();
        assert_eq!(form("POST", "/v1/chat/completions"), ErrorForm::Envelope(Dialect::OpenaiChat));
        assert_eq!(form("GET", "/v1/chat/completions"), ErrorForm::Envelope(Dialect::OpenaiChat));
        assert_eq!(form("POST", "/v1/responses"), ErrorForm::Envelope(Dialect::OpenaiResponses));
        assert_eq!(form("GET", "/v1/messages"), ErrorForm::Envelope(Dialect::AnthropicMessages));
        assert_eq!(form("POST", "/v1beta/models/m:generateContent"), ErrorForm::Envelope(Dialect::Gemini));
        assert_eq!(form("GET", "/v1/balance"), ErrorForm::Problem);
        assert_eq!(form("POST", "/v1/other"), ErrorForm::Problem);
    }

    #[cfg(not(feature = "test-hooks"))]
    #[test]
    fn test_hooks_are_compiled_out() {
        assert_eq!(Destination::of("GET", "/__test/calls"), Destination::Nowhere);
        assert_eq!(Destination::of("POST", "/__test/panic"), Destination::Nowhere);
        assert_eq!(Destination::of("POST", "/__test/panic-object/gen_1"), Destination::Nowhere);
        assert_eq!(Destination::of("POST", "/__test/write-fault/lost/1"), Destination::Nowhere);
    }
}
