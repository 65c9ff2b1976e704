"""By what the parts of an installation prove to each other who they are, and keep secret what they say: certificates
of the installation's own CA, where `[security] tls` is on.

`authority` is the CA, and how it is replaced without a gap; `parts` has the certificates in files, one for each part,
and makes them anew; `client` is the control plane's end of connections. What a part checks is in the crate
`storage/crates/part-tls`; why it is so in docs/adr/0081-parts-prove-who-they-are.md.

No private key is in a log, an argument of a program, an environment or an error."""
