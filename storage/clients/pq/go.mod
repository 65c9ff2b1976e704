// Pins lib/pq, whose own tests `make test-clients` runs; nothing is built of it.
module weir/storage/clients/pq

go 1.25.0

require github.com/lib/pq v1.11.2
