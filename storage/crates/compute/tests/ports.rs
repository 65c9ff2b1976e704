//! Promise: what is under the rules about ports listens at its own one, is served there, and reaches no other.
//!
//! The rules are a thread's: each test enters them in a thread of its own. A kernel that does not know ports says so.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

use compute::postgres::ports::listen_only_at;

/// Runs `what` in a thread that listens at `port` alone; `None` where the kernel is too old for that.
fn shut_off<T: Send>(port: u16, what: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| match listen_only_at(port) {
            Ok(()) => Some(what()),
            Err(why) => {
                assert!(why.contains("Landlock"), "{why}");
                eprintln!("not tested: {why}");
                None
            }
        });
        thread.join().unwrap()
    })
}

fn refused<T>(outcome: io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::PermissionDenied)
}

/// A listener of another part, and a port that nobody has.
fn another() -> (TcpListener, u16) {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    (other, free.local_addr().unwrap().port())
}

#[test]
fn no_port_is_taken_or_reached_but_the_own_one() {
    let (other, own) = another();
    let address = other.local_addr().unwrap();
    assert!(TcpStream::connect(address).is_ok(), "it can be reached");
    shut_off(own, || {
        assert!(refused(TcpListener::bind("127.0.0.1:0")));
        assert!(refused(TcpListener::bind("[::1]:0")));
        assert!(refused(TcpStream::connect(address)));
        assert!(TcpListener::bind(("127.0.0.1", own)).is_ok());
    });
    assert!(TcpStream::connect(address).is_ok(), "other threads go on");
}

#[test]
fn who_connects_is_served() {
    let (_, own) = another();
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            shut_off(own, || {
                let listener = TcpListener::bind(("127.0.0.1", own)).unwrap();
                ready.send(()).unwrap();
                let (mut client, _) = listener.accept().unwrap();
                client.write_all(b"served").unwrap();
            })
        });
        // No listener, and no message, where the kernel is too old.
        if is_ready.recv().is_ok() {
            let mut said = String::new();
            let mut server = TcpStream::connect(("127.0.0.1", own)).unwrap();
            server.read_to_string(&mut said).unwrap();
            assert_eq!(said, "served");
        }
    });
}

#[test]
fn programs_inherit_the_rules() {
    let (other, own) = another();
    let port = other.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let connect = || Command::new("/bin/bash").args(["-c", &script]).output();
    assert!(connect().unwrap().status.success());
    if let Some(said) = shut_off(own, connect) {
        let errors = String::from_utf8(said.unwrap().stderr).unwrap();
        assert!(errors.contains("Permission denied"), "{errors}");
    }
}
