package client

import (
	"context"
	"net/http"
	"net/url"
)

// Snapshot is a kept state of a branch as the API shows it. Times are RFC 3339.
type Snapshot struct {
	ID             string  `json:"id"`
	Name           string  `json:"name"`
	LSN            *string `json:"lsn"`
	Timestamp      *string `json:"timestamp"`
	SourceBranchID *string `json:"source_branch_id"`
	CreatedAt      string  `json:"created_at"`
	ExpiresAt      *string `json:"expires_at"`
	Manual         bool    `json:"manual"`
	FullSize       *int64  `json:"full_size"`
}

// SnapshotWanted says which state is to be kept: the newest one unless there is an LSN or a timestamp. Empty texts are
// left out.
type SnapshotWanted struct{ Name, LSN, Timestamp, ExpiresAt string }

// TakeSnapshot begins to keep a state of a branch.
func (c *Client) TakeSnapshot(
	ctx context.Context, projectID, branchID string, wanted SnapshotWanted,
) (*Snapshot, []Operation, error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"name": wanted.Name, "lsn": wanted.LSN, "timestamp": wanted.Timestamp, "expires_at": wanted.ExpiresAt,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	path := Path("projects", projectID, "branches", branchID, "snapshot")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var answer struct {
		Snapshot   Snapshot    `json:"snapshot"`
		Operations []Operation `json:"operations"`
	}
	err := c.Call(ctx, http.MethodPost, path, nil, &answer)
	return &answer.Snapshot, answer.Operations, err
}

// Snapshots lists all snapshots of a project.
func (c *Client) Snapshots(ctx context.Context, projectID string) ([]Snapshot, error) {
	var answer struct {
		Snapshots []Snapshot `json:"snapshots"`
	}
	return answer.Snapshots, c.Call(ctx, http.MethodGet, Path("projects", projectID, "snapshots"), nil, &answer)
}

// Snapshot reads one snapshot; nil where the project has none with this id.
func (c *Client) Snapshot(ctx context.Context, projectID, id string) (*Snapshot, error) {
	all, err := c.Snapshots(ctx, projectID)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if one.ID == id {
			return &one, nil
		}
	}
	return nil, nil
}

// ChangeSnapshot gives a snapshot another name or expiry.
func (c *Client) ChangeSnapshot(ctx context.Context, projectID, id string, fields Fields) (*Snapshot, error) {
	var answer struct {
		Snapshot Snapshot `json:"snapshot"`
	}
	path := Path("projects", projectID, "snapshots", id)
	return &answer.Snapshot, c.Call(ctx, http.MethodPatch, path, Fields{"snapshot": fields}, &answer)
}

// ScheduleItem says when snapshots of a branch are taken by themselves, and for how long each is kept. Hours are UTC.
type ScheduleItem struct {
	Frequency        string `json:"frequency"`
	Hour             *int64 `json:"hour,omitempty"`
	Day              *int64 `json:"day,omitempty"`
	RetentionSeconds *int64 `json:"retention_seconds,omitempty"`
}

// Schedule reads a branch's schedule; empty where it has none.
func (c *Client) Schedule(ctx context.Context, projectID, branchID string) ([]ScheduleItem, error) {
	var answer struct {
		Schedule []ScheduleItem `json:"schedule"`
	}
	path := Path("projects", projectID, "branches", branchID, "backup_schedule")
	return answer.Schedule, c.Call(ctx, http.MethodGet, path, nil, &answer)
}

// SetSchedule replaces a branch's schedule; an empty one ends it.
func (c *Client) SetSchedule(ctx context.Context, projectID, branchID string, schedule []ScheduleItem) error {
	if schedule == nil {
		schedule = []ScheduleItem{}
	}
	path := Path("projects", projectID, "branches", branchID, "backup_schedule")
	return c.Call(ctx, http.MethodPut, path, Fields{"schedule": schedule}, nil)
}
