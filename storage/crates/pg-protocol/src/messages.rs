//! Messages that a server sends in the start-up phase, as bytes.

/// Severity and SQLSTATE of an error that ends a connection, its text, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fatal {
    /// Five characters; Appendix A of Postgres's documentation.
    pub sqlstate: &'static str,
    /// What happened: the field `M` of an ErrorResponse. Zero bytes are left out of it when it is sent.
    pub message: String,
    /// What to do: the field `H` of an ErrorResponse. `None` leaves the field out.
    pub hint: Option<String>,
}

impl Fatal {
    /// An error with this SQLSTATE and text, and no hint.
    pub fn new(sqlstate: &'static str, message: impl Into<String>) -> Fatal {
        Fatal {
            sqlstate,
            message: message.into(),
            hint: None,
        }
    }

    /// The same error with this hint, in place of an earlier one.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Fatal {
        self.hint = Some(hint.into());
        self
    }

    /// As an ErrorResponse that ends the connection.
    pub fn to_message(&self) -> Vec<u8> {
        self.with_severity("FATAL")
    }

    /// As an ErrorResponse that ends a statement only.
    pub fn to_error_message(&self) -> Vec<u8> {
        self.with_severity("ERROR")
    }

    fn with_severity(&self, severity: &str) -> Vec<u8> {
        let mut body = Vec::new();
        let mut field = |code: u8, text: &str| {
            body.push(code);
            // A zero byte would end the field.
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        };
        field(b'S', severity);
        field(b'V', severity);
        field(b'C', self.sqlstate);
        field(b'M', &self.message);
        if let Some(hint) = &self.hint {
            field(b'H', hint);
        }
        body.push(0);
        message(b'E', &body)
    }
}

/// A message of a type with a body.
pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.push(tag);
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn authentication(kind: u32, data: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes(), data].concat())
}

/// AuthenticationSASL: the mechanisms that are offered, the preferred one first.
pub fn sasl(mechanisms: &[&str]) -> Vec<u8> {
    let mut names = Vec::new();
    for mechanism in mechanisms {
        names.extend_from_slice(mechanism.as_bytes());
        names.push(0);
    }
    names.push(0);
    authentication(10, &names)
}

/// AuthenticationSASLContinue.
pub fn sasl_continue(data: &str) -> Vec<u8> {
    authentication(11, data.as_bytes())
}

/// AuthenticationSASLFinal and AuthenticationOk.
pub fn sasl_final_and_ok(data: &str) -> Vec<u8> {
    [authentication(12, data.as_bytes()), authentication(0, &[])].concat()
}

/// AuthenticationCleartextPassword.
pub fn cleartext_password() -> Vec<u8> {
    authentication(3, &[])
}

/// AuthenticationOk.
pub fn authentication_ok() -> Vec<u8> {
    authentication(0, &[])
}

/// BackendKeyData.
pub fn backend_key(process_id: u32, key: &[u8]) -> Vec<u8> {
    message(b'K', &[&process_id.to_be_bytes(), key].concat())
}

/// NegotiateProtocolVersion: the minor version that is spoken, and the options that are not known.
pub fn negotiate(minor: u16, unknown: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&(0x0003_0000 | u32::from(minor)).to_be_bytes());
    body.extend_from_slice(&(unknown.len() as u32).to_be_bytes());
    for name in unknown {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
    }
    message(b'v', &body)
}

/// The body of a client's SASLInitialResponse: the mechanism and the first data.
pub fn parse_sasl_initial(body: &[u8]) -> Option<(&str, &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    let mechanism = std::str::from_utf8(&body[..end]).ok()?;
    let (length, data) = body[end + 1..].split_first_chunk::<4>()?;
    (u32::from_be_bytes(*length) as usize == data.len()).then_some((mechanism, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_no_zero_byte_within_a_field() {
        let bytes = Fatal::new("28P01", "a\0b").with_hint("c").to_message();
        assert_eq!(
            &bytes[5..],
            b"SFATAL\0VFATAL\0C28P01\0Mab\0Hc\0\0".as_slice()
        );
        assert_eq!(bytes[1..5], (bytes.len() as u32 - 1).to_be_bytes());
    }

    #[test]
    fn a_first_sasl_response_says_how_long_its_data_is() {
        assert_eq!(
            parse_sasl_initial(b"X\0\0\0\0\x02ab"),
            Some(("X", &b"ab"[..]))
        );
        for wrong in [
            &b""[..],
            b"X",
            b"X\0",
            b"X\0\0\0\0\x02a",
            b"X\0\0\0\0\x02abc",
            b"X\0\xFF\xFF\xFF\xFF",
        ] {
            assert_eq!(parse_sasl_initial(wrong), None, "{wrong:?}");
        }
    }
}
