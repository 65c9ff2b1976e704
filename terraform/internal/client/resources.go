package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// Fields is what a request says of a thing, by the API's names. A name that is absent leaves the thing as it is; nil
// is the API's null.
type Fields map[string]any

// Settings are Postgres settings by name, with the compute's idle time in seconds where the API keeps one.
type Settings struct {
	PgSettings            map[string]string `json:"pg_settings"`
	SuspendTimeoutSeconds *int64            `json:"suspend_timeout_seconds"`
}

// Project is a project as the API shows it. Times are RFC 3339.
type Project struct {
	ID                      string            `json:"id"`
	Name                    string            `json:"name"`
	RegionID                string            `json:"region_id"`
	Cell                    string            `json:"cell"`
	PgVersion               int64             `json:"pg_version"`
	TenantID                string            `json:"tenant_id"`
	OwnerID                 string            `json:"owner_id"`
	ProxyHost               string            `json:"proxy_host"`
	CreatedAt               string            `json:"created_at"`
	HistoryRetentionSeconds int64             `json:"history_retention_seconds"`
	Tags                    map[string]string `json:"tags"`
	DefaultEndpointSettings Settings          `json:"default_endpoint_settings"`
	Settings                struct {
		Quota struct {
			LogicalSizeBytes  int64 `json:"logical_size_bytes"`
			WalBytesPerSecond int64 `json:"wal_bytes_per_second"`
		} `json:"quota"`
	} `json:"settings"`
}

// Branch is a branch as the API shows it. Times are RFC 3339.
type Branch struct {
	ID              string  `json:"id"`
	ProjectID       string  `json:"project_id"`
	ParentID        *string `json:"parent_id"`
	ParentLSN       *string `json:"parent_lsn"`
	ParentTimestamp *string `json:"parent_timestamp"`
	Name            string  `json:"name"`
	TimelineID      string  `json:"timeline_id"`
	ExpiresAt       *string `json:"expires_at"`
	Default         bool    `json:"default"`
	Protected       bool    `json:"protected"`
	Durability      string  `json:"durability"`
	CreatedAt       string  `json:"created_at"`
}

// Endpoint is a compute and its address, as the API shows it.
type Endpoint struct {
	ID                    string   `json:"id"`
	ProjectID             string   `json:"project_id"`
	BranchID              string   `json:"branch_id"`
	Name                  *string  `json:"name"`
	Type                  string   `json:"type"`
	Host                  string   `json:"host"`
	Port                  int64    `json:"port"`
	ProxyHost             string   `json:"proxy_host"`
	PoolerHost            *string  `json:"pooler_host"`
	CurrentState          string   `json:"current_state"`
	Disabled              bool     `json:"disabled"`
	SuspendTimeoutSeconds int64    `json:"suspend_timeout_seconds"`
	CreatedAt             string   `json:"created_at"`
	Settings              Settings `json:"settings"`
}

// Role is a role of a branch; the password is left out on purpose.
type Role struct {
	BranchID  string `json:"branch_id"`
	Name      string `json:"name"`
	Protected bool   `json:"protected"`
	CreatedAt string `json:"created_at"`
}

// Database is a database of a branch.
type Database struct {
	ID        int64  `json:"id"`
	BranchID  string `json:"branch_id"`
	Name      string `json:"name"`
	OwnerName string `json:"owner_name"`
	CreatedAt string `json:"created_at"`
}

// APIKey is a key of the account; Key is there in the answer that makes it, and never again.
type APIKey struct {
	ID        int64  `json:"id"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	CreatedAt string `json:"created_at"`
}

// Changed is the answer to most changes: what there is now, as far as the change is about it, and the operations that
// carry it out.
type Changed struct {
	Project    *Project    `json:"project"`
	Branch     *Branch     `json:"branch"`
	Endpoint   *Endpoint   `json:"endpoint"`
	Endpoints  []Endpoint  `json:"endpoints"`
	Role       *Role       `json:"role"`
	Roles      []Role      `json:"roles"`
	Database   *Database   `json:"database"`
	Databases  []Database  `json:"databases"`
	Operations []Operation `json:"operations"`
}

// Change makes one request whose answer is a thing with operations.
func (c *Client) Change(ctx context.Context, method, path string, body any) (*Changed, error) {
	var answer Changed
	if err := c.Call(ctx, method, path, body, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// Delete deletes the thing at path and waits until it is gone. One that does not exist is no error.
func (c *Client) Delete(ctx context.Context, path string) error {
	answer, err := c.Change(ctx, http.MethodDelete, path, nil)
	if err == nil {
		err = c.Wait(ctx, answer.Operations)
	}
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Get reads the one thing at path.
func (c *Client) Get(ctx context.Context, path string) (*Changed, error) {
	return c.Change(ctx, http.MethodGet, path, nil)
}

// Projects lists all projects of the account.
func (c *Client) Projects(ctx context.Context) ([]Project, error) {
	return pages(ctx, c, Path("projects"), func(page *listed) []Project { return page.Projects })
}

// Branches lists all branches of a project.
func (c *Client) Branches(ctx context.Context, projectID string) ([]Branch, error) {
	return pages(ctx, c, Path("projects", projectID, "branches"), func(page *listed) []Branch { return page.Branches })
}

// Endpoints lists the endpoints of a branch.
func (c *Client) Endpoints(ctx context.Context, projectID, branchID string) ([]Endpoint, error) {
	answer, err := c.Get(ctx, Path("projects", projectID, "branches", branchID, "endpoints"))
	if err != nil {
		return nil, err
	}
	return answer.Endpoints, nil
}

// APIKeys lists the account's keys, without their secrets.
func (c *Client) APIKeys(ctx context.Context) ([]APIKey, error) {
	var keys []APIKey
	return keys, c.Call(ctx, http.MethodGet, Path("api_keys"), nil, &keys)
}

// CreateAPIKey makes a key of the account that asks.
func (c *Client) CreateAPIKey(ctx context.Context, name string) (*APIKey, error) {
	var key APIKey
	return &key, c.Call(ctx, http.MethodPost, Path("api_keys"), Fields{"key_name": name}, &key)
}

// RevokeAPIKey ends a key. One that does not exist is no error.
func (c *Client) RevokeAPIKey(ctx context.Context, id int64) error {
	err := c.Call(ctx, http.MethodDelete, Path("api_keys", strconv.FormatInt(id, 10)), nil, nil)
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Connection says which connection URI is wanted. Without a branch and an endpoint it is the default branch's.
type Connection struct {
	ProjectID, BranchID, EndpointID, Database, Role string
	Pooled                                          bool
}

// ConnectionURI returns a URI with the role's password in it.
func (c *Client) ConnectionURI(ctx context.Context, wanted Connection) (string, error) {
	query := url.Values{"database_name": {wanted.Database}, "role_name": {wanted.Role}}
	for name, value := range map[string]string{"branch_id": wanted.BranchID, "endpoint_id": wanted.EndpointID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if wanted.Pooled {
		query.Set("pooled", "true")
	}
	var answer struct{ URI string }
	path := Path("projects", wanted.ProjectID, "connection_uri") + "?" + query.Encode()
	return answer.URI, c.Call(ctx, http.MethodGet, path, nil, &answer)
}

type listed struct {
	Projects   []Project `json:"projects"`
	Branches   []Branch  `json:"branches"`
	Pagination struct {
		Cursor *string `json:"cursor"`
		Next   *string `json:"next"`
	} `json:"pagination"`
}

// pages reads a list to its end.
func pages[T any](ctx context.Context, c *Client, path string, rows func(*listed) []T) ([]T, error) {
	var found []T
	query := url.Values{"limit": {"100"}}
	for {
		var page listed
		if err := c.Call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		found = append(found, rows(&page)...)
		next := page.Pagination.Cursor
		if next == nil {
			next = page.Pagination.Next
		}
		if next == nil || *next == "" || len(rows(&page)) == 0 {
			return found, nil
		}
		query.Set("cursor", *next)
	}
}
