//! What each route needs of a token. A route that is not named here is the control plane's.

use axum::http::Method;
use token::Rights;
use token::http::Access;

/// The name by which tokens call a pageserver.
pub const AUDIENCE: &str = "pageserver";

const READ: Access = Access::Any(&[Rights::MANAGE, Rights::READ_PAGES]);
const WRITE: Access = Access::Any(&[Rights::MANAGE, Rights::WRITE_WAL]);
/// A bundle has what a compute starts from, and makes its term the newest: who may only read must not fence who writes.
const BEGIN: Access = Access::Any(&[Rights::MANAGE, Rights::READ_PAGES.and(Rights::WRITE_WAL)]);

/// By the route's method and declared path.
pub fn access(method: &Method, route: Option<&str>) -> Access {
    let Some(route) = route else {
        return Access::MANAGE;
    };
    match route {
        "/healthz" => return Access::Open,
        "/metrics" => return Access::METRICS,
        _ => {}
    }
    match route.strip_prefix("/v1/tenant/{tenant}/timeline/{timeline}") {
        Some("") if method == Method::GET => READ,
        Some("/bundle") if method == Method::GET => BEGIN,
        Some("/start" | "/aux") if method == Method::PUT => WRITE,
        _ => Access::MANAGE,
    }
}
