//! How many connections there are to each endpoint and of each role: a tenant with many clients leaves places to others,
//! and a program with a leak leaves some to the other programs of its endpoint.
//!
//! Only clients that have logged in are counted, so that no stranger takes anybody's place.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::Fatal;

/// Most connections at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To one endpoint, its pooler's among them.
    pub endpoint: usize,
    /// Of one role at one endpoint.
    pub role: usize,
}

#[derive(Default)]
struct Counts {
    all: usize,
    roles: HashMap<Arc<str>, usize>,
}

/// The clients that have logged in.
pub struct Crowd {
    limits: Limits,
    endpoints: Mutex<HashMap<EndpointName, Counts>>,
}

/// A client's place, given back when this goes.
pub struct Place {
    crowd: Arc<Crowd>,
    endpoint: EndpointName,
    role: Arc<str>,
}

impl Crowd {
    /// Without a client so far.
    pub fn new(limits: Limits) -> Arc<Crowd> {
        Arc::new(Crowd {
            limits,
            endpoints: Mutex::default(),
        })
    }

    /// Takes a place for a client that has logged in.
    ///
    /// # Errors
    /// 53300: none is left.
    pub fn enter(self: &Arc<Crowd>, endpoint: &EndpointName, role: &str) -> Result<Place, Fatal> {
        let mut endpoints = self.endpoints.lock();
        let counts = endpoints.entry(endpoint.clone()).or_default();
        let of_role = counts.roles.get(role).copied().unwrap_or(0);
        let Limits {
            endpoint: all,
            role: each,
        } = self.limits;
        let full = match (counts.all >= all, of_role >= each) {
            (true, _) => Some((format!("endpoint {endpoint}"), all)),
            (_, true) => Some((format!("role \"{role}\" at endpoint {endpoint}"), each)),
            _ => None,
        };
        if let Some((whose, limit)) = full {
            // A limit is 1 at least, so what is full has clients, and its entry stays for them.
            let text = format!("too many connections for {whose}: the proxy lets in {limit}");
            let hint = "Close connections that are not used; a pool in the application needs few.";
            return Err(Fatal::new("53300", text).with_hint(hint));
        }
        let role: Arc<str> = role.into();
        counts.all += 1;
        *counts.roles.entry(role.clone()).or_default() += 1;
        Ok(Place {
            crowd: self.clone(),
            endpoint: endpoint.clone(),
            role,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut endpoints = self.crowd.endpoints.lock();
        let Some(counts) = endpoints.get_mut(&self.endpoint) else {
            return;
        };
        counts.all -= 1;
        if let Some(count) = counts.roles.get_mut(&self.role) {
            *count -= 1;
            if *count == 0 {
                counts.roles.remove(&self.role);
            }
        }
        if counts.all == 0 {
            endpoints.remove(&self.endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_and_a_role_have_their_limits_and_others_their_places() {
        let crowd = Crowd::new(Limits {
            endpoint: 3,
            role: 2,
        });
        let names = ["ep-a", "ep-b"].map(|name| EndpointName::new(name).expect("a name"));
        let full = |name: &EndpointName, role: &str| {
            let refused = crowd.enter(name, role).err().expect("no place is left");
            assert_eq!(refused.sqlstate, "53300");
            refused.message
        };
        let enter = |name: &EndpointName, role: &str| crowd.enter(name, role).expect("a place");
        let mut inside = vec![enter(&names[0], "app"), enter(&names[0], "app")];
        assert!(full(&names[0], "app").contains("role \"app\" at endpoint ep-a"));
        inside.push(enter(&names[0], "other"));
        assert!(full(&names[0], "third").contains("for endpoint ep-a"));
        inside.push(enter(&names[1], "app"));
        drop(inside.remove(0));
        inside.push(enter(&names[0], "app"));
        drop(inside);
        assert!(crowd.endpoints.lock().is_empty());
    }
}
