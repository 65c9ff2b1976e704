package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Rollout is a rollout as the API shows it. Selector and Strategy are the API's JSON.
type Rollout struct {
	ID            string          `json:"id"`
	Name          string          `json:"name"`
	Feature       string          `json:"feature"`
	Status        string          `json:"status"`
	StatusReason  *string         `json:"status_reason"`
	Gate          *string         `json:"gate"`
	Selector      json.RawMessage `json:"selector"`
	Strategy      json.RawMessage `json:"strategy"`
	CreatedAt     string          `json:"created_at"`
	FinishedAt    *string         `json:"finished_at"`
	ComputesTotal int64           `json:"computes_total"`
	SwitchedTotal int64           `json:"switched_total"`
	Waves         []struct {
		State string `json:"state"`
	} `json:"waves"`
}

// Ended reports whether nothing of the rollout goes on any more.
func (r *Rollout) Ended() bool {
	return slices.Contains([]string{"aborted", "rolled_back", "completed", "failed"}, r.Status)
}

// AwaitsApproval tells a rollout that is held because its strategy asks for a person's approval from one that is held for
// what its computes did: all gates have names.
func (r *Rollout) AwaitsApproval() bool {
	return r.Status == "held" && r.Gate != nil && (*r.Gate == "plan" || strings.HasSuffix(*r.Gate, "-begins"))
}

// Plan is what a rollout would do if it began now.
type Plan struct {
	Waves []struct {
		Index       int64  `json:"index"`
		Name        string `json:"name"`
		SoakSeconds int64  `json:"soak_seconds"`
		Computes    int64  `json:"computes"`
	} `json:"waves"`
	ComputesTotal    int64    `json:"computes_total"`
	AtNextStartTotal int64    `json:"at_next_start_total"`
	ExcludedTotal    int64    `json:"excluded_total"`
	WalSaved         *float64 `json:"expected_wal_saved_bytes_per_second"`
	TargetVersion    *string  `json:"target_version"`
	Computes         []struct {
		ComputeID string `json:"compute_id"`
		ProjectID string `json:"project_id"`
		Wave      int64  `json:"wave"`
		Mode      string `json:"mode"`
	} `json:"computes"`
	Excluded []struct {
		ComputeID string `json:"compute_id"`
		ProjectID string `json:"project_id"`
		Code      string `json:"code"`
		Reason    string `json:"reason"`
	} `json:"excluded"`
}

// PlanRollout makes the plan that a rollout with these fields would have now; it changes nothing. At most limit
// computes and as many exclusions are listed; the totals count all.
func (c *Client) PlanRollout(ctx context.Context, fields Fields, limit int64) (*Plan, error) {
	var answer struct{ Plan Plan }
	path := fmt.Sprintf("/rollouts/plan?limit=%d", limit)
	return &answer.Plan, c.Call(ctx, http.MethodPost, path, fields, &answer)
}

// CreateRollout freezes the plan and starts the rollout.
func (c *Client) CreateRollout(ctx context.Context, fields Fields) (*Rollout, error) {
	return c.rollout(ctx, http.MethodPost, Path("rollouts"), fields)
}

// Rollout reads one rollout.
func (c *Client) Rollout(ctx context.Context, id string) (*Rollout, error) {
	return c.rollout(ctx, http.MethodGet, Path("rollouts", id), nil)
}

// AbortRollout stops a rollout: computes that have not passed go back.
func (c *Client) AbortRollout(ctx context.Context, id string) (*Rollout, error) {
	return c.rollout(ctx, http.MethodPost, Path("rollouts", id, "abort"), nil)
}

func (c *Client) rollout(ctx context.Context, method, path string, fields Fields) (*Rollout, error) {
	var answer struct{ Rollout Rollout }
	var body any
	if fields != nil {
		body = fields
	}
	return &answer.Rollout, c.Call(ctx, method, path, body, &answer)
}

// Await reads the rollout again and again until done says so, or gives an error. Errors of the context are told with
// where the rollout stands; it goes on.
func (c *Client) Await(ctx context.Context, rollout *Rollout, done func(*Rollout) (bool, error)) (*Rollout, error) {
	pause := c.pace.FirstPause
	for {
		if reached, err := done(rollout); reached || err != nil {
			return rollout, err
		}
		if err := sleep(ctx, pause); err != nil {
			return rollout, fmt.Errorf("rollout %s (%s) is %s with %d of %d computes switched, and goes on: %w",
				rollout.Name, rollout.ID, rollout.Status, rollout.SwitchedTotal, rollout.ComputesTotal, err)
		}
		pause = min(pause*3/2, c.pace.LongestPause)
		next, err := c.Rollout(ctx, rollout.ID)
		if err == nil {
			rollout = next
		} else if ctx.Err() == nil {
			return rollout, fmt.Errorf("rollout %s was begun and cannot be followed: %w", rollout.ID, err)
		}
	}
}
