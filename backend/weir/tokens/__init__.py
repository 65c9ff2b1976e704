"""What parts of an installation know each other by: signed tokens of the control plane, one for each purpose.

`keys` makes and changes the key that signs, and the set of public keys that parts read; `mint` signs; `bearer` has
the token for a request; `parts` keeps the tokens in files that parts show to each other. What a part checks is in
the crate `storage/crates/token`; why it is so in docs/adr/0063-internal-ports-authenticate.md.

No token and no private key is in a log, an argument of a program, an environment or an error."""
