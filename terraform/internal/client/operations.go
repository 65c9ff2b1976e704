package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Operation is work that the API began and answers before it is done.
type Operation struct {
	ID        string  `json:"id"`
	ProjectID string  `json:"project_id"`
	Action    string  `json:"action"`
	Status    string  `json:"status"`
	Error     *string `json:"error"`
}

// OperationError is an operation that ended otherwise than well.
type OperationError struct{ Operation Operation }

func (e *OperationError) Error() string {
	why := "the operation gives no reason"
	if e.Operation.Error != nil && *e.Operation.Error != "" {
		why = *e.Operation.Error
	}
	return fmt.Sprintf("operation %s (%s) of project %s is %s: %s",
		e.Operation.ID, e.Operation.Action, e.Operation.ProjectID, e.Operation.Status, why)
}

// Wait returns when all operations have finished; with an *OperationError for the first that ended otherwise. A
// context that ends stops the waiting alone: the error says that the operation goes on.
func (c *Client) Wait(ctx context.Context, operations []Operation) error {
	for _, operation := range operations {
		if err := c.waitOne(ctx, operation); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) waitOne(ctx context.Context, operation Operation) error {
	started, pause := time.Now(), c.pace.FirstPause
	for {
		switch operation.Status {
		case "finished", "skipped":
			return nil
		case "failed", "error", "cancelled":
			return &OperationError{operation}
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("operation %s (%s) of project %s is still %s after %s, and goes on: %w", operation.ID,
				operation.Action, operation.ProjectID, operation.Status, time.Since(started).Round(time.Second), err)
		}
		pause = min(pause*3/2, c.pace.LongestPause)
		var answer struct{ Operation Operation }
		path := Path("projects", operation.ProjectID, "operations", operation.ID)
		if err := c.Call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			if ctx.Err() != nil {
				continue
			}
			return fmt.Errorf("operation %s (%s) of project %s was begun and cannot be followed: %w", operation.ID,
				operation.Action, operation.ProjectID, err)
		}
		operation = answer.Operation
	}
}
