package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a refusal by the API.
type Error struct {
	Method, Path string
	// Status is the answer's HTTP status.
	Status int
	// Code is stable; Message says what happened, to what, and what to do.
	Code, Message string
	// RequestID finds the request in the API's log and in the audit log.
	RequestID string
	// RetryAfter is how long the answer asks to wait before the request is repeated; 0 where it does not say.
	RetryAfter time.Duration
}

// rateLimited is the code of a request too many, of which the API has done nothing. A server in between has none.
const rateLimited = "RATE_LIMITED"

// Error gives the API's own message, what was asked, and the id to ask for in the log.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s\n\n%s %s was answered with %d", e.Message, e.Method, e.Path, e.Status)
	if e.Code != "" {
		text += " " + e.Code
	}
	if e.RequestID != "" {
		text += ", request id " + e.RequestID
	}
	return text
}

// IsNotFound reports whether the API said that there is no such thing. An API that does not know the path at all, which
// an older one may not, says nothing of the thing: its message begins with the request.
func IsNotFound(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound && refused.Code == "NOT_FOUND" &&
		!strings.HasPrefix(refused.Message, refused.Method+" /")
}

func refusal(method, path string, answer *http.Response, content []byte) *Error {
	refused := &Error{Method: method, Path: path, Status: answer.StatusCode}
	if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 31); err == nil {
		refused.RetryAfter = time.Duration(seconds) * time.Second
	}
	var body struct {
		RequestID string `json:"request_id"`
		Code      string `json:"code"`
		Message   string `json:"message"`
	}
	if json.Unmarshal(content, &body) == nil && body.Message != "" {
		refused.Code, refused.Message, refused.RequestID = body.Code, body.Message, body.RequestID
	} else {
		// No code: a server in between that answers 404 does not say that a thing is gone.
		refused.Message = fmt.Sprintf("The answer is not of Weir's API: %.200q", content)
	}
	if refused.RequestID == "" {
		refused.RequestID = answer.Header.Get("X-Request-Id")
	}
	if refused.Status == http.StatusUnauthorized {
		refused.Message += ". Give the key of one of its accounts in WEIR_API_KEY, or as `api_key` of the provider"
	}
	return refused
}
