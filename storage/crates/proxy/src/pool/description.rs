//! What a client was told of a statement: the types of its parameters, and its columns.
//!
//! A driver that has had a statement described reads rows by what it was told then, and asks no more. A server connection
//! that prepares the statement later may make other rows of it, which the driver would misread. Postgres refuses a
//! statement whose rows have become others; so that a pool does, too, descriptions are compared by a hash.

use std::hash::{DefaultHasher, Hasher as _};

use pg_protocol::messages::{Fatal, message};

/// Bytes of a column behind its name: table, number in the table, type, length, modifier, format.
const COLUMN_BYTES: usize = 18;

/// A description's hash. What says in which table a column is counts for nothing, as it does for Postgres: a table that
/// is made anew has the rows that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description(u64);

/// The begin of a description, of which the columns have not come.
#[derive(Clone, Default, Debug)]
pub struct Begun(DefaultHasher);

impl Begun {
    /// Of a ParameterDescription's body.
    pub fn new(parameters: &[u8]) -> Begun {
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(parameters.len());
        hasher.write(parameters);
        Begun(hasher)
    }

    /// With a RowDescription's body, or the begin of a long one; without a body for a statement without rows.
    pub fn with_columns(&self, body: &[u8]) -> Description {
        let mut hasher = self.0.clone();
        let mut rest = body.get(2..).unwrap_or_default();
        hasher.write(body.get(..2).unwrap_or_default());
        while let Some(end) = rest.iter().position(|byte| *byte == 0)
            && let Some((column, after)) = rest[end + 1..].split_at_checked(COLUMN_BYTES)
        {
            hasher.write(&rest[..=end]);
            // Type, length and modifier.
            hasher.write(&column[6..16]);
            rest = after;
        }
        Description(hasher.finish())
    }
}

/// The error with which Postgres refuses a statement that has another description than when it was prepared, with the
/// fields by which drivers know it: they prepare the statement anew.
pub fn outdated() -> Vec<u8> {
    let error = Fatal::new("0A000", "cached plan must not change result type");
    let mut whole = error.to_error_message();
    // In place of the zero byte that ends the fields.
    whole.pop();
    whole.extend(b"RRevalidateCachedQuery\0\0");
    message(b'E', &whole[5..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::schema::is_outdated;
    use crate::pool::turn::field;

    fn column(name: &str, table: u8, kind: u8, modifier: u8) -> Vec<u8> {
        let mut bytes = [name.as_bytes(), b"\0"].concat();
        bytes.extend([
            0, 0, 0, table, 0, 1, 0, 0, 0, kind, 0, 4, 0, 0, 0, modifier, 0, 0,
        ]);
        bytes
    }

    #[test]
    fn types_and_names_count_and_tables_do_not() {
        let body =
            |columns: &[Vec<u8>]| [&[0, columns.len() as u8][..], &columns.concat()].concat();
        let begun = Begun::new(b"\0\x01\0\0\0\x17");
        let one = begun.with_columns(&body(&[column("a", 1, 23, 0), column("b", 1, 25, 0)]));
        let same = begun.with_columns(&body(&[column("a", 2, 23, 0), column("b", 2, 25, 0)]));
        assert_eq!(one, same);
        for other in [
            vec![column("a", 1, 20, 0), column("b", 1, 25, 0)],
            vec![column("a", 1, 23, 0), column("c", 1, 25, 0)],
            vec![column("a", 1, 23, 0), column("b", 1, 25, 9)],
            vec![column("a", 1, 23, 0)],
            vec![
                column("a", 1, 23, 0),
                column("b", 1, 25, 0),
                column("", 0, 0, 0),
            ],
            vec![],
        ] {
            assert_ne!(begun.with_columns(&body(&other)), one, "{other:?}");
        }
        assert_ne!(begun.with_columns(b""), one);
        assert_ne!(
            Begun::new(b"\0\0").with_columns(&body(&[column("a", 1, 23, 0)])),
            one
        );
    }

    #[test]
    fn the_error_is_the_one_that_drivers_know() {
        let error = outdated();
        let body = &error[5..];
        assert_eq!(error[1..5], (error.len() as u32 - 1).to_be_bytes());
        let code = field(body, b'C').expect("a code");
        assert!(is_outdated(code, field(body, b'R')));
        assert_eq!(
            field(body, b'M'),
            Some(&b"cached plan must not change result type"[..])
        );
        assert!(error.ends_with(b"\0\0"));
    }
}
