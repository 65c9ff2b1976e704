//! The gate before an axum router: `Authorization: Bearer`, 401 without a good token, 403 for a good one of other rights
//! or another scope.

use std::fmt;
use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::json;

use crate::claims::{Need, Scope};
use crate::gate::Gate;
use crate::refusal::Refusal;
use crate::rights::Rights;

/// What a route needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing, and it tells nothing.
    Open,
    /// The rights of one of these sets.
    Any(&'static [Rights]),
}

impl Access {
    /// What management needs, and each route that is not named.
    pub const MANAGE: Access = Access::Any(&[Rights::MANAGE]);
    /// What `/metrics` needs.
    pub const METRICS: Access = Access::Any(&[Rights::METRICS]);
}

/// What a route needs, by its method and the path that it was declared with; `None` for what is no route.
pub type Rule = fn(&Method, Option<&str>) -> Access;

/// The scope of a request.
#[derive(Clone, Copy, Debug)]
pub enum About {
    /// That of `{tenant}` and `{timeline}` in the route's path; without them, the whole installation's.
    Path,
    /// One timeline's, whatever the path: a compute's agent serves no other.
    Own(Scope),
}

#[derive(Clone)]
struct Protection {
    gate: Arc<Gate>,
    rule: Rule,
    about: About,
}

/// Puts `gate` before all routes of `router`, and before its fallback. Call it last: routes that are added afterwards
/// are not protected.
pub fn protect(router: Router, gate: Arc<Gate>, about: About, rule: Rule) -> Router {
    let protection = Protection { gate, rule, about };
    router.layer(from_fn_with_state(protection, check))
}

async fn check(
    State(protection): State<Protection>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map(MatchedPath::as_str);
    let Access::Any(any_of) = (protection.rule)(request.method(), route) else {
        return next.run(request).await;
    };
    let scope = match protection.about {
        About::Own(scope) => scope,
        About::Path => params.map_or(Scope::default(), |params| scope_of(&params)),
    };
    let need = Need { any_of, scope };
    let asked = Asked(request.method(), route.unwrap_or("what is no route"));
    match protection
        .gate
        .admit(bearer(request.headers()), &need, &asked)
    {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(refusal),
    }
}

/// Of a request, for the log.
struct Asked<'a>(&'a Method, &'a str);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

/// An id that is none makes the request one about the whole installation: a token for a part of it does not reach so far,
/// and the handler refuses it to all others.
fn scope_of(params: &RawPathParams) -> Scope {
    let named = |wanted| params.iter().find(|(name, _)| *name == wanted);
    let tenant = named("tenant").map(|(_, text)| text.parse().ok());
    let timeline = named("timeline").map(|(_, text)| text.parse().ok());
    match (tenant, timeline) {
        (Some(None), _) | (_, Some(None)) => Scope::default(),
        (tenant, timeline) => Scope {
            tenant: tenant.flatten(),
            timeline: timeline.flatten(),
        },
    }
}

/// The one token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Refusal::Missing)?;
    if values.next().is_some() {
        return Err(Refusal::Malformed("there is more than one"));
    }
    let text = value
        .to_str()
        .map_err(|_| Refusal::Malformed("it is not ASCII"))?;
    match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token),
        _ => Err(Refusal::Missing),
    }
}

fn refused(refusal: Refusal) -> Response {
    let (status, code) = match refusal.is_forbidden() {
        true => (StatusCode::FORBIDDEN, "forbidden"),
        false => (StatusCode::UNAUTHORIZED, "unauthenticated"),
    };
    let body =
        Json(json!({"code": code, "message": refusal.to_string(), "reason": refusal.reason()}));
    match refusal.is_forbidden() {
        true => (status, body).into_response(),
        false => (status, [(header::WWW_AUTHENTICATE, "Bearer")], body).into_response(),
    }
}
