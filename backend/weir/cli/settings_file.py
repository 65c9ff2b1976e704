"""`weir.toml` as the first `weir up` writes it: every setting, with what it is for."""

TEMPLATE = """\
# Settings of this Weir installation, written by the first `weir up`. Change them while Weir is down.
# Each can be overridden by the environment: WEIR_PORT_API=8400, WEIR_COMPUTE_PORTS=8700-8899, ...
# Everything listens on 127.0.0.1, the proxy where [proxy] says.

[ports]
{ports}

[api]
# Hosts by which browsers and clients reach the console and the API, with commas between, beside those of loopback:
# "weir.example.org, 10.0.0.5". Requests that name another host are refused (docs/security.md).
allowed_hosts = ""
# true: clients reach it by TLS alone, which a proxy before it ends. Browsers are told to keep to it.
behind_tls = false
# Bytes that the body of a request may have.
max_body_bytes = 1048576
# Processes that answer requests: more than one where requests wait for each other and processors are free. Each holds
# keys to the rates below by itself.
api_processes = 1
# Requests that one API key may make: a minute/at once, or "off". Those that read, that change, that show or make a
# secret, that run SQL or a dump; and those of one address without a key that is known to be right.
rate_reads = "6000/2000"
rate_changes = "1200/600"
rate_reveals = "300/300"
rate_sql = "600/300"
rate_strangers = "600/600"
# What an account may have that has no quota of its own, such as "projects=20, computes=8, storage_bytes=none".
# `weir-admin quotas` shows and sets those of accounts and projects (docs/operate/limits.md).
quotas = ""

# Identity providers that people sign in by (docs/operating.md), a table each. The table's name, of small letters,
# digits and underscores, is in the address that the provider knows: PUBLIC URL/api/v2/auth/oidc/NAME/callback.
# [identity.oidc.corp]
# name = "Example Corp"                     # on the button
# issuer = "https://login.example.org"      # as the provider writes itself
# client_id = "weir"
# client_secret_file = "/absolute/path"     # readable for who runs Weir; none: a public client
# scopes = ["openid", "email", "profile"]
# allowed_domains = ["example.org"]         # people with verified emails there are made when they first sign in
# organization = "admin"                    # by name: what they become members of; "": of none
# role = "viewer"                           # there: viewer, member or admin

[computes]
# Postgres gets the even ports, the agent of each compute the odd port above.
ports = "{computes}"
# What computes are: "local" (processes of this machine), or "simulated" (a model of computes and storage, for scale
# tests of the control plane: no database runs). Choose before the first `weir up`.
runtime = "{runtime}"
# Local disk of each compute for pages that came from storage and that it has not written, MiB. Beyond it those that
# were not read lately go, to be fetched again when they are read. Pages that it has written stay. 0: no limit.
cache_mib = {cache_mib}
# The largest size that an endpoint may ask for (autoscaling_limit_max_cu), in units of one processor and 4 GiB. Above
# 1 the size of a compute follows its load between its endpoint's limits. Only `cgroup` keeps one from using more.
max_cu = 1
# Where Weir is run by root, each compute has a user of the operating system of its own while it runs, from this range
# of numbers, which nothing else on this machine may use; so many can run. "": computes share the user in [postgres].
users = "{users}"
# Where Weir is run by root: a control group that you have made for Weir, such as "/weir" for /sys/fs/cgroup/weir.
# Each compute gets one below it, which bounds its memory, processor time and processes by its size, and services one
# that comes before them. "": nothing bounds computes.
cgroup = ""

[services]
# Where Weir is run by root, metadata store, Temporal, Prometheus, safekeepers, pageserver, API and proxy each have a
# user of the operating system of their own, a number from this range, which nothing else on this machine may use.
# Each installation takes {service_block} of them. "": all run as root, the metadata store as the user in [postgres].
users = "{service_users}"

[proxy]
# One address with TLS for the databases of all endpoints (docs/operate/connect.md). Without it clients connect to
# each compute's own port, on this machine and without TLS.
enabled = true
# Where it listens: 127.0.0.1 for this machine only, 0.0.0.0 or :: for others too.
listen = "127.0.0.1"
# The host in connection strings, when there is no domain: a name or an address of this machine.
host = "localhost"
# With a domain, such as "db.example.com", whose names *.db.example.com all lead here, each endpoint has a host name
# of its own. Without one connection strings name the endpoint in an option.
domain = ""
# PEM files of a certificate for these names, with those between it and its CA, and of its private key: absolute
# paths. They are read again when they change. Empty: Weir makes both, and a CA for clients to trust, tls/ca.pem.
certificate = ""
private_key = ""
# Clients that add -pooler to the endpoint's name share server connections, a transaction at a time
# (docs/operate/pooling.md): so many of one role in one database, and so many of all at one endpoint. Have the second
# well below the compute's max_connections, which is 100 unless it is set.
pool_size = {pool_size}
pool_database_connections = {pool_database_connections}
# Prepared statements that a server connection keeps.
pool_statements = {pool_statements}
# How long a client waits for a server connection, and after how long one is closed that nobody uses, and one that is
# used, so that what ALTER ROLE has changed is so for all; in milliseconds.
pool_queue_timeout_ms = {pool_queue_timeout_ms}
pool_idle_ms = {pool_idle_ms}
pool_lifetime_ms = {pool_lifetime_ms}
# Whether DISCARD ALL is sent before a server connection goes to another client, for clients that leave settings,
# temporary tables or locks behind. It costs a round trip each time, and all prepared statements.
pool_discard = false
# Clients that one endpoint may have, and one role at one endpoint: others find places, too.
max_endpoint_connections = {max_endpoint_connections}
max_role_connections = {max_role_connections}
# A port for load balancers, at the address of `listen`: each connection begins with a header of the PROXY protocol,
# version 2, which says whose it is. trusted_senders are the load balancers' addresses, such as "10.0.0.0/8,
# 192.0.2.7"; others are refused there. 0 and "": no such port.
behind_port = 0
trusted_senders = ""

[security]
# Whether storage, computes and the control plane prove to each other which part they are, by certificates of a CA
# that Weir makes and renews, and encrypt what they say. Prometheus answers only them then. Connections to databases
# are not meant: see [proxy].
tls = false

[storage]
# Where the databases' layers are kept: a directory (file:///...) or a bucket (s3://bucket/prefix). Empty: `objects`
# in this directory. Endpoint, region and credentials of a bucket are lines NAME=VALUE (AWS_ENDPOINT_URL, AWS_REGION,
# AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) of secrets/object_store.env. Choose before the first project.
object_store = "{object_store}"
# Whether layers, and WAL in the object store, are encrypted, each project's by a key of its own (docs/operate/
# encryption.md). `weir up` makes the key that protects those keys, secrets/storage_keys. Keep a copy of that file
# elsewhere: without it every database is lost. What was encrypted stays so when this is false again.
encryption = false

[durability]
# Levels that no branch may have, of "off" and "receive" (docs/durability.md). Sessions may choose them all the same.
forbid = []

[safekeepers]
# How many run here, 1 to {most_safekeepers}. New branches have their log on the first three; the others are spares,
# for `weir safekeepers set` and `weir safekeepers replace`. Take away only the last ones, and only when `weir
# safekeepers list` shows no branch on them.
count = {safekeepers}
# Whether finished WAL goes to the object store, too, so that it outlives the safekeepers' disks.
offload = true
# After how many minutes a safekeeper that is sick for a branch's log (it does not answer, has lost the log, or has
# damaged it beyond repair) is replaced by a spare one there, while a majority of the others is well. 0: never.
replace_after_minutes = 0
# WAL of one branch that a safekeeper may keep until storage has made pages of it, MiB, 64 or more. Within the last
# quarter the branch's compute is slowed; at the quota its writes are refused. 0: no limit.
wal_quota_mib = {wal_quota_mib}
# Free disk of each safekeeper below which branches that keep much WAL take no more, MiB; never more than a tenth of
# the disk. 0: none.
disk_reserve_mib = {disk_reserve_mib}

[pageserver]
# Memory for what is not in a layer file yet, over all databases. A busy database is flushed at 256 MiB, or sooner
# when an eighth of this is less. Beyond half of it the busiest wait.
memory_mib = {memory_mib}
# Memory for new layers, for reads, when the object store is a directory: those of a busy database's last two flushes.
recent_layers_mib = {recent_layers_mib}
# Memory for blocks of layers, and for pages as they were read last.
block_cache_mib = {block_cache_mib}
page_cache_mib = {page_cache_mib}
# Disk for copies of layers whose object store is a bucket. A twentieth of the disk is left free in any case.
layer_cache_mib = {layer_cache_mib}

[postgres]
# The programs of Postgres 15, for computes and for the metadata store.
bin_dir = "{pg_bin}"
# Who runs them when Weir is run by root; Postgres refuses to be root.
user = "postgres"

[prometheus]
retention = "15d"
scrape_interval_seconds = 1

[telemetry]
# Where to send traces (OTLP over HTTP), for example "http://127.0.0.1:4318". Empty: nowhere.
otlp_endpoint = ""
"""
