//! Handlers below `/v1/tenant/{tenant}/timeline`.

use std::collections::HashMap;
use std::str::FromStr;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pg_types::{Lsn, Term};

use super::{ApiResult, Manager, body, reply, tenant_id, timeline_id};
use crate::api::{
    CreateTimeline, DetachInfo, DetachState, LeaseGiven, LeaseRequest, SafekeeperList,
    SickSafekeeperOfTimeline, StartHeld, StartRequest,
};
use crate::error::Error;
use crate::timeline::START_HOLD_SECONDS;
use crate::timeline_index::StartPoint;
use crate::timestamp::PgTimestamp;

type Ids = Path<(String, String)>;
type Params = Query<HashMap<String, String>>;

macro_rules! find {
    ($manager:expr, $ids:expr) => {
        $manager.timeline(tenant_id(&$ids.0)?, timeline_id(&$ids.1)?)?
    };
}

/// A required query parameter.
fn parameter<T: FromStr>(params: &HashMap<String, String>, name: &str) -> Result<T, Error>
where
    T::Err: std::fmt::Display,
{
    let text = params
        .get(name)
        .ok_or_else(|| Error::BadRequest(format!("query parameter {name} is missing")))?;
    text.parse()
        .map_err(|error| Error::BadRequest(format!("query parameter {name}: {error}")))
}

pub async fn create(
    State(manager): Manager,
    Path(tenant): Path<String>,
    bytes: Bytes,
) -> ApiResult {
    let request: CreateTimeline = body(&bytes)?;
    let tenant = manager.tenant(tenant_id(&tenant)?)?;
    let (timeline, created) = manager.create_timeline(&tenant, request).await?;
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(reply(status, &timeline.status().await))
}

/// Of every timeline that works, in one answer: mostly there are none.
pub async fn sick_safekeepers(State(manager): Manager) -> Response {
    let mut found = Vec::new();
    for tenant in manager.tenants() {
        for timeline in tenant.working_timelines() {
            let sick = timeline.safekeepers().sick().into_iter();
            found.extend(sick.map(|sick| SickSafekeeperOfTimeline {
                tenant_id: timeline.tenant(),
                timeline_id: timeline.id(),
                sick,
            }));
        }
    }
    reply(StatusCode::OK, &found)
}

/// The status of every timeline that works.
pub async fn list(State(manager): Manager, Path(tenant): Path<String>) -> ApiResult {
    let timelines = manager.tenant(tenant_id(&tenant)?)?.working_timelines();
    let mut statuses = Vec::with_capacity(timelines.len());
    for timeline in timelines {
        statuses.push(timeline.status().await);
    }
    Ok(reply(StatusCode::OK, &statuses))
}

pub async fn status(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    Ok(reply(StatusCode::OK, &find!(manager, ids).status().await))
}

/// With `?branches=delete` its branches go as well; without, having some is a reason to refuse.
pub async fn delete(State(manager): Manager, Path(ids): Ids, Query(params): Params) -> ApiResult {
    let with_branches = match params.get("branches").map(String::as_str) {
        None | Some("refuse") => false,
        Some("delete") => true,
        Some(other) => {
            let message =
                format!("query parameter branches: {other:?} is neither refuse nor delete");
            return Err(Error::BadRequest(message).into());
        }
    };
    manager
        .delete_timeline(tenant_id(&ids.0)?, timeline_id(&ids.1)?, with_branches)
        .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub async fn lsn_by_timestamp(
    State(manager): Manager,
    Path(ids): Ids,
    Query(params): Params,
) -> ApiResult {
    let timestamp: PgTimestamp = parameter(&params, "timestamp")?;
    Ok(reply(
        StatusCode::OK,
        &find!(manager, ids).lsn_by_timestamp(timestamp).await?,
    ))
}

pub async fn timestamp_of_lsn(
    State(manager): Manager,
    Path(ids): Ids,
    Query(params): Params,
) -> ApiResult {
    let lsn: Lsn = parameter(&params, "lsn")?;
    Ok(reply(
        StatusCode::OK,
        &find!(manager, ids).timestamp_of_lsn(lsn).await?,
    ))
}

pub async fn bundle(State(manager): Manager, Path(ids): Ids, Query(params): Params) -> ApiResult {
    let (lsn, term): (Lsn, u64) = (parameter(&params, "lsn")?, parameter(&params, "term")?);
    let pieces = find!(manager, ids).bundle(lsn, Term(term)).await?;
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let headers = [
        ("content-type", "application/x-tar".to_owned()),
        ("content-length", length.to_string()),
    ];
    let pieces = pieces.into_iter().map(Ok::<_, std::convert::Infallible>);
    let tar = Body::from_stream(futures::stream::iter(pieces));
    Ok((headers, tar).into_response())
}

pub async fn put_aux(
    State(manager): Manager,
    Path(ids): Ids,
    Query(params): Params,
    bytes: Bytes,
) -> ApiResult {
    let (lsn, term): (Lsn, u64) = (parameter(&params, "lsn")?, parameter(&params, "term")?);
    find!(manager, ids).put_aux(lsn, Term(term), bytes).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub async fn checkpoint(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    let timeline = find!(manager, ids);
    timeline.checkpoint().await?;
    Ok(reply(StatusCode::OK, &timeline.status().await))
}

pub async fn put_safekeepers(State(manager): Manager, Path(ids): Ids, bytes: Bytes) -> ApiResult {
    let SafekeeperList { safekeepers } = body(&bytes)?;
    let (tenant, timeline) = (tenant_id(&ids.0)?, timeline_id(&ids.1)?);
    let timeline = manager
        .set_safekeepers(tenant, timeline, safekeepers)
        .await?;
    Ok(reply(StatusCode::OK, &timeline.status().await))
}

/// The terms that wrote the ingested WAL; null while they are not known.
pub async fn ingested(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    Ok(reply(StatusCode::OK, &find!(manager, ids).ingested()))
}

pub async fn lease(State(manager): Manager, Path(ids): Ids, bytes: Bytes) -> ApiResult {
    let request: LeaseRequest = body(&bytes)?;
    let (tenant, timeline) = (tenant_id(&ids.0)?, timeline_id(&ids.1)?);
    let (lease, until) = manager
        .lease(tenant, timeline, request.lsn, request.seconds)
        .await?;
    let given = LeaseGiven {
        lsn: lease.lsn,
        valid_until: until.to_string(),
    };
    Ok(reply(StatusCode::OK, &given))
}

/// A compute says that it runs, and keeps what it started from readable.
pub async fn hold_start(State(manager): Manager, Path(ids): Ids, bytes: Bytes) -> ApiResult {
    let StartRequest { term, lsn } = body(&bytes)?;
    let (tenant, timeline) = (tenant_id(&ids.0)?, timeline_id(&ids.1)?);
    let start = StartPoint {
        term: Term(term),
        lsn,
    };
    manager.hold_start(tenant, timeline, start).await?;
    let held = StartHeld {
        seconds: START_HOLD_SECONDS,
    };
    Ok(reply(StatusCode::OK, &held))
}

/// Begins to make a branch independent of its ancestors, unless that is under way or done; 202 while it is.
pub async fn detach(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    let (tenant, timeline) = (tenant_id(&ids.0)?, timeline_id(&ids.1)?);
    let info = manager.detach(tenant, timeline)?;
    Ok(reply(status_of(&info), &info))
}

fn status_of(info: &DetachInfo) -> StatusCode {
    match info.state {
        DetachState::Running => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    }
}

/// Has it stop; 202 until it has. One that is done stays so.
pub async fn give_up_detaching(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    let (tenant, timeline) = (tenant_id(&ids.0)?, timeline_id(&ids.1)?);
    let info = manager.give_up_detaching(tenant, timeline)?;
    Ok(reply(status_of(&info), &info))
}

pub async fn detaching(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    Ok(reply(StatusCode::OK, &find!(manager, ids).detach_info()))
}

pub async fn layers(State(manager): Manager, Path(ids): Ids) -> ApiResult {
    Ok(reply(StatusCode::OK, &find!(manager, ids).layer_infos()))
}

pub async fn chains(State(manager): Manager, Path(ids): Ids) -> ApiResult<Response> {
    Ok(reply(StatusCode::OK, &find!(manager, ids).chains()))
}

/// Reads everything as of `?lsn=`, or as of now.
pub async fn digest(State(manager): Manager, Path(ids): Ids, Query(params): Params) -> ApiResult {
    let at = match params.contains_key("lsn") {
        true => Some(parameter(&params, "lsn")?),
        false => None,
    };
    Ok(reply(
        StatusCode::OK,
        &find!(manager, ids).digest(at).await?,
    ))
}
