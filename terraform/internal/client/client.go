// Package client calls Weir's public API for the provider: one request at a time, with the repeats that the API asks
// for, and the waiting for operations.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	prefix        = "/api/v2"
	answerTimeout = 60 * time.Second
	// No answer of the API is near this size.
	mostBytes = 64 << 20
)

// Pace says how long the client repeats and waits. Every wait ends earlier when its context does.
type Pace struct {
	// Busy bounds for how long one request is repeated while another operation holds its project (423), or while the key
	// has made too many (429 RATE_LIMITED).
	Busy time.Duration
	// Away bounds for how long one read is repeated while the API does not answer, or answers 502, 503 or 504, or a
	// server in between answers 429.
	Away time.Duration
	// FirstPause is the pause before the first repeat; each further pause is half as long again, up to LongestPause.
	FirstPause, LongestPause time.Duration
}

// DefaultPace is what the provider uses.
var DefaultPace = Pace{
	Busy:         10 * time.Minute,
	Away:         20 * time.Second,
	FirstPause:   200 * time.Millisecond,
	LongestPause: 3 * time.Second,
}

// Client calls the API of one Weir with the key of one account. The key is in no text that this package makes.
type Client struct {
	address string
	key     string
	agent   string
	pace    Pace
	http    *http.Client
}

// New returns a client of the API at address, `http://HOST:PORT` or `https://HOST`, with or without the API's own path
// `/api/v2`. Errors name what is wrong with the address.
func New(address, key, agent string, pace Pace) (*Client, error) {
	parsed, err := url.Parse(strings.TrimSpace(address))
	if err != nil {
		return nil, fmt.Errorf("the API's address %q is no URL: %w", address, err)
	}
	if (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, fmt.Errorf("the API's address %q is not of the form http://HOST:PORT or https://HOST", address)
	}
	if parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, errors.New("the API's address has a user, a query or a fragment; give scheme, host and port alone")
	}
	parsed.Path = strings.TrimSuffix(strings.TrimSuffix(parsed.Path, "/"), prefix)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if local(parsed.Hostname()) {
		// A proxy in the environment is not for this machine.
		transport.Proxy = nil
	}
	return &Client{
		address: parsed.String(),
		key:     strings.TrimSpace(key),
		agent:   agent,
		pace:    pace,
		http: &http.Client{
			Timeout:   answerTimeout,
			Transport: transport,
			// The API redirects nothing; what does is another server, which the key is not for.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Exposed reports whether the key crosses a network without encryption.
func (c *Client) Exposed() bool {
	parsed, err := url.Parse(c.address)
	return err == nil && parsed.Scheme == "http" && !local(parsed.Hostname())
}

func local(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || (address != nil && address.IsLoopback())
}

// Path joins parts to a path of the API; a name with a slash or a space stays one part.
func Path(parts ...string) string {
	var path strings.Builder
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

// Call makes one request and reads the answer into out, which may be nil. A request is repeated while its project is
// busy, and while the key has made too many, both of which the API answers before it has done anything; a read also
// while the API is away. Between repeats lies at least what the answer asks for (`Retry-After`). A write that was not
// answered is not repeated, since it may have been done. The error is an *Error where the API refused.
func (c *Client) Call(ctx context.Context, method, path string, body, out any) error {
	var sent []byte
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: the request cannot be written as JSON: %w", method, path, err)
		}
		sent = encoded
	}
	started, pause := time.Now(), c.pace.FirstPause
	for {
		content, err := c.send(ctx, method, path, sent)
		if err == nil {
			return c.read(method, path, content, out)
		}
		limit := c.patience(method, err)
		if limit == 0 || ctx.Err() != nil {
			return c.explain(ctx, method, err)
		}
		wait := max(jittered(pause), askedFor(err))
		if time.Since(started)+wait > limit {
			return fmt.Errorf("%w; repeated for %s", c.explain(ctx, method, err), limit)
		}
		if waited := sleep(ctx, wait); waited != nil {
			return fmt.Errorf("%w; %w", c.explain(ctx, method, err), waited)
		}
		pause = min(pause*3/2, c.pace.LongestPause)
	}
}

// patience is for how long a request that ended with this error is repeated; 0: not at all.
func (c *Client) patience(method string, err error) time.Duration {
	var refused *Error
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusLocked:
			return c.pace.Busy
		case http.StatusTooManyRequests:
			if refused.Code == rateLimited {
				return c.pace.Busy
			}
			if method == http.MethodGet {
				return c.pace.Away
			}
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			if method == http.MethodGet {
				return c.pace.Away
			}
		}
		return 0
	}
	if method == http.MethodGet {
		return c.pace.Away
	}
	return 0
}

// askedFor is how long the answer asks to wait before the request is repeated; 0 where it does not say.
func askedFor(err error) time.Duration {
	var refused *Error
	if errors.As(err, &refused) {
		return refused.RetryAfter
	}
	return 0
}

func (c *Client) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.address+prefix+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", c.agent)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes))
	if err != nil {
		return nil, fmt.Errorf("%s %s: the answer broke off: %w", method, path, err)
	}
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return nil, refusal(method, path, answer, content)
	}
	return content, nil
}

func (c *Client) read(method, path string, content []byte, out any) error {
	if out == nil || len(content) == 0 {
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("%s %s: what answers at %s is not this Weir's API: %w", method, path, c.address, err)
	}
	return nil
}

// explain says of a request that was not answered what is known of it.
func (c *Client) explain(ctx context.Context, method string, err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return err
	}
	done := ""
	if method != http.MethodGet {
		done = "; what was asked for may have been done"
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w before the API at %s answered%s", stopped(ctx), c.address, done)
	}
	return fmt.Errorf("the API at %s does not answer: %w%s", c.address, err, done)
}

// stopped says why a context ended, in words for the user.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the time that `timeouts` allows was over: %w", ctx.Err())
	}
	return fmt.Errorf("interrupted: %w", ctx.Err())
}

// jittered spreads the repeats of clients that were refused at the same moment.
func jittered(pause time.Duration) time.Duration {
	return pause*3/4 + rand.N(pause/2+1)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return stopped(ctx)
	}
}
