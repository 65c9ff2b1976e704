// pgx as it is published, through the proxy: at an endpoint's own host and at its pooler's.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const clients, rounds = 8, 25

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	endpoint, domain := os.Getenv("PROXY_ENDPOINT"), os.Getenv("PROXY_DOMAIN")
	for _, host := range []string{endpoint + "." + domain, endpoint + "-pooler." + domain} {
		if err := try(ctx, host); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", host, err)
			os.Exit(1)
		}
	}
	fmt.Println("done")
}

// configuration of clients that check the certificate, and find the host at this machine, as DNS would say.
func configuration(host, password string) (*pgxpool.Config, error) {
	where := "host=%s port=%s user=app dbname=appdb sslmode=verify-full pool_max_conns=%d"
	config, err := pgxpool.ParseConfig(fmt.Sprintf(where, host, os.Getenv("PROXY_PORT"), clients))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(os.Getenv("PROXY_CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, errors.New("the CA's file has no certificate")
	}
	config.ConnConfig.Password = password
	config.ConnConfig.TLSConfig = &tls.Config{RootCAs: roots, ServerName: host}
	config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) {
		return []string{net.IPv4(127, 0, 0, 1).String()}, nil
	}
	return config, nil
}

func try(ctx context.Context, host string) error {
	config, err := configuration(host, os.Getenv("PROXY_PASSWORD"))
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	for _, part := range []struct {
		name string
		run  func(context.Context, *pgxpool.Pool) error
	}{{"statements", statements}, {"a batch", batch}, {"a transaction", transaction}, {"COPY", copyRows}} {
		if err := part.run(ctx, pool); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return wrongPassword(ctx, host)
}

// statements are prepared and kept by each client, whatever server connection it gets.
func statements(ctx context.Context, pool *pgxpool.Pool) error {
	var all sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		all.Go(func() {
			for number := range rounds {
				var next int
				var text string
				row := pool.QueryRow(ctx, "SELECT $1::int + 1, $2::text", number, fmt.Sprint(number))
				if err := row.Scan(&next, &text); err != nil || next != number+1 || text != fmt.Sprint(number) {
					failed <- fmt.Errorf("%d became %d and %q: %w", number, next, text, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// batch sends all queries before it reads an answer.
func batch(ctx context.Context, pool *pgxpool.Pool) error {
	queries := &pgx.Batch{}
	for number := range rounds {
		queries.Queue("SELECT $1::int * 2", number)
	}
	results := pool.SendBatch(ctx, queries)
	for number := range rounds {
		var twice int
		if err := results.QueryRow().Scan(&twice); err != nil || twice != 2*number {
			return errors.Join(fmt.Errorf("twice %d is %d", number, twice), err, results.Close())
		}
	}
	return results.Close()
}

func transaction(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "CREATE TABLE x (a int)"); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "SELECT nothing FROM x")
	if err := expect(err, "42703"); err != nil {
		return err
	}
	if err := tx.Rollback(ctx); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "SELECT * FROM x")
	return expect(err, "42P01")
}

func copyRows(ctx context.Context, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "CREATE TEMP TABLE c (a int) ON COMMIT DROP"); err != nil {
		return err
	}
	rows := pgx.CopyFromSlice(1000, func(number int) ([]any, error) { return []any{number}, nil })
	count, err := tx.CopyFrom(ctx, pgx.Identifier{"c"}, []string{"a"}, rows)
	if err != nil || count != 1000 {
		return fmt.Errorf("%d rows: %w", count, err)
	}
	return tx.Commit(ctx)
}

func wrongPassword(ctx context.Context, host string) error {
	config, err := configuration(host, "wrong")
	if err != nil {
		return err
	}
	_, err = pgx.ConnectConfig(ctx, config.ConnConfig)
	return expect(err, "28P01")
}

// expect takes an error of this SQLSTATE for success.
func expect(err error, code string) error {
	var told *pgconn.PgError
	if errors.As(err, &told) && told.Code == code {
		return nil
	}
	return fmt.Errorf("%v in place of %s", err, code)
}
