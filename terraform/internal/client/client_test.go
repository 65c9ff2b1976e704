package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "napi_not_to_be_told"

var quick = Pace{
	Busy: 2 * time.Second, Away: 200 * time.Millisecond, FirstPause: time.Millisecond, LongestPause: 5 * time.Millisecond,
}

func serving(t *testing.T, pace Pace, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	made, err := New(server.URL, secret, "test", pace)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("X-Request-Id", "req-12345678")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"request_id": "req-12345678", "code": code, "message": message})
}

func TestARefusalHasTheAPIsMessageAndTheRequestID(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusConflict, "CONFLICT", "project p already has a branch named \"dev\"")
	})
	_, err := api.Change(context.Background(), http.MethodPost, "/projects/p/branches", Fields{})
	for _, part := range []string{"already has a branch named", "409 CONFLICT", "req-12345678", "POST /projects/p/branches"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
}

func TestABusyProjectIsAskedAgain(t *testing.T) {
	var asked atomic.Int32
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 4 {
			refuse(w, http.StatusLocked, "PROJECT_BUSY", "project p is busy")
			return
		}
		fmt.Fprint(w, `{"operations": []}`)
	})
	if _, err := api.Change(context.Background(), http.MethodPost, "/projects/p/branches", Fields{}); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 4 {
		t.Errorf("asked %d times, not 4", asked.Load())
	}
}

func TestABusyProjectIsAskedForABoundedTime(t *testing.T) {
	pace := quick
	pace.Busy = 50 * time.Millisecond
	api := serving(t, pace, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusLocked, "PROJECT_BUSY", "project p is busy with a detach")
	})
	_, err := api.Change(context.Background(), http.MethodPatch, "/projects/p", Fields{})
	if err == nil || !strings.Contains(err.Error(), "busy with a detach") || !strings.Contains(err.Error(), "repeated for 50ms") {
		t.Errorf("got %v", err)
	}
}

func TestAWriteThatWasNotAnsweredIsNotRepeated(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError} {
		var asked atomic.Int32
		api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			refuse(w, status, "DEPENDENCY_UNAVAILABLE", "the metadata database did not answer in time")
		})
		if _, err := api.Change(context.Background(), http.MethodPost, "/projects", Fields{}); err == nil {
			t.Errorf("%d: no error", status)
		}
		if asked.Load() != 1 {
			t.Errorf("%d: asked %d times", status, asked.Load())
		}
	}
}

// Of a request too many the API has done nothing, and says when to come back.
func TestAWriteTooManyIsRepeatedWhenTheAPISaysSo(t *testing.T) {
	var asked atomic.Int32
	var first time.Time
	pace := quick
	pace.Busy = 5 * time.Second
	api := serving(t, pace, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, "RATE_LIMITED", "too many changes")
			return
		}
		if waited := time.Since(first); waited < time.Second {
			t.Errorf("repeated after %s", waited)
		}
		fmt.Fprint(w, `{"operations": []}`)
	})
	if _, err := api.Change(context.Background(), http.MethodPost, "/projects", Fields{}); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times, not 2", asked.Load())
	}
}

func TestARequestTooManyIsNotWaitedForBeyondTheBound(t *testing.T) {
	started := time.Now()
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		refuse(w, http.StatusTooManyRequests, "RATE_LIMITED", "too many changes of this key")
	})
	_, err := api.Change(context.Background(), http.MethodPost, "/projects", Fields{})
	if err == nil || !strings.Contains(err.Error(), "too many changes of this key") {
		t.Errorf("got %v", err)
	}
	if time.Since(started) > quick.Busy {
		t.Errorf("waited for %s", time.Since(started))
	}
}

// A server in between may have passed the request on: its 429 says nothing of what was done.
func TestAWriteThatAnotherServerRefusedIsNotRepeated(t *testing.T) {
	var asked atomic.Int32
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Retry-After", "0")
		http.Error(w, "slow down", http.StatusTooManyRequests)
	})
	if _, err := api.Change(context.Background(), http.MethodPost, "/projects", Fields{}); err == nil {
		t.Error("no error")
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestAReadIsRepeatedWhileTheAPIIsAway(t *testing.T) {
	var asked atomic.Int32
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			refuse(w, http.StatusServiceUnavailable, "DEPENDENCY_UNAVAILABLE", "not now")
			return
		}
		fmt.Fprint(w, `{"project": {"id": "p", "name": "shop"}}`)
	})
	found, err := api.Get(context.Background(), "/projects/p")
	if err != nil || found.Project.Name != "shop" {
		t.Fatalf("got %+v, %v", found, err)
	}
}

func TestNothingAnswers(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	api, err := New(server.URL, secret, "test", quick)
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.Get(context.Background(), "/projects/p")
	if err == nil || !strings.Contains(err.Error(), "does not answer") || IsNotFound(err) {
		t.Errorf("got %v", err)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		err := api.Call(context.Background(), method, "/projects/p", nil, nil)
		if strings.Contains(err.Error(), secret) {
			t.Error("the key is in the error")
		}
		if strings.Contains(err.Error(), "may have been done") != (method == http.MethodPost) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// A server in between that answers 404 must not make resources vanish from the state.
func TestA404OfAnotherServerIsNotTheAPIs(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page", http.StatusNotFound) })
	_, err := api.Get(context.Background(), "/projects/p")
	if err == nil || IsNotFound(err) {
		t.Errorf("got %v, which counts as the API's word that the project is gone", err)
	}
}

func TestAPathThatTheAPIDoesNotKnowSaysNothingOfTheThing(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "NOT_FOUND", fmt.Sprintf("%s %s: Not Found", r.Method, r.URL.Path))
	})
	if _, err := api.Rollout(context.Background(), "ro"); err == nil || IsNotFound(err) {
		t.Errorf("got %v, which counts as the API's word that the rollout is gone", err)
	}
	if err := api.Delete(context.Background(), "/projects/p"); err == nil {
		t.Error("a deletion that was not done is no error")
	}
}

func TestAnAnswerThatIsNoJSON(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>a portal</html>") })
	if _, err := api.Get(context.Background(), "/projects/p"); err == nil || !strings.Contains(err.Error(), "not this Weir's API") {
		t.Errorf("got %v", err)
	}
}

func TestTheKeyGoesToTheAPIAlone(t *testing.T) {
	var told atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { told.Store(true) }))
	defer other.Close()
	api := serving(t, quick, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secret {
			t.Errorf("authorization is %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	if _, err := api.Get(context.Background(), "/projects/p"); err == nil {
		t.Error("a redirect is no error")
	}
	if told.Load() {
		t.Error("the redirect was followed")
	}
}

func TestOperationsAreWaitedFor(t *testing.T) {
	var asked atomic.Int32
	api := serving(t, quick, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v2/projects/p/operations/o" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		status := "running"
		if asked.Add(1) == 3 {
			status = "finished"
		}
		fmt.Fprintf(w, `{"operation": {"id": "o", "project_id": "p", "action": "start_compute", "status": %q}}`, status)
	})
	begun := []Operation{{ID: "o", ProjectID: "p", Action: "start_compute", Status: "scheduling"}}
	if err := api.Wait(context.Background(), begun); err != nil || asked.Load() != 3 {
		t.Errorf("got %v after %d", err, asked.Load())
	}
}

func TestAnOperationThatFails(t *testing.T) {
	for _, status := range []string{"failed", "error", "cancelled"} {
		api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"operation": {"id": "o", "project_id": "p", "action": "start_compute", "status": %q,
				"error": "no port is left"}}`, status)
		})
		err := api.Wait(context.Background(), []Operation{{ID: "o", ProjectID: "p", Status: "running"}})
		var failed *OperationError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "no port is left") {
			t.Errorf("%s: got %v", status, err)
		}
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"operation": {"id": "o", "project_id": "p", "action": "create_branch", "status": "running"}}`)
	})
	begun := []Operation{{ID: "o", ProjectID: "p", Action: "create_branch", Status: "running"}}
	short, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
	defer cancel()
	err := api.Wait(short, begun)
	if err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "`timeouts`") ||
		!strings.Contains(err.Error(), "goes on") {
		t.Errorf("got %v", err)
	}
	interrupted, stop := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, stop)
	started := time.Now()
	err = api.Wait(interrupted, begun)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") || time.Since(started) > time.Second {
		t.Errorf("got %v after %s", err, time.Since(started))
	}
}

func TestListsAreReadToTheirEnd(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			fmt.Fprint(w, `{"branches": [{"id": "a"}], "pagination": {"next": "more"}}`)
		case "more":
			fmt.Fprint(w, `{"branches": [{"id": "b"}], "pagination": {"next": null}}`)
		}
	})
	found, err := api.Branches(context.Background(), "p")
	if err != nil || len(found) != 2 || found[1].ID != "b" {
		t.Errorf("got %+v, %v", found, err)
	}
}

func TestDeletingWhatIsGoneIsNoError(t *testing.T) {
	api := serving(t, quick, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "NOT_FOUND", "branch br does not exist")
	})
	if err := api.Delete(context.Background(), "/projects/p/branches/br"); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for _, wrong := range []string{"", "weir.example.com", "ftp://weir", "http://u:p@weir", "http://weir/?a=b", "http://"} {
		if _, err := New(wrong, secret, "test", quick); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	for address, exposed := range map[string]bool{
		"http://127.0.0.1:7400": false, "http://localhost:7400/": false, "https://weir.example.com/api/v2": false,
		"http://[::1]:7400/api/v2/": false, "http://weir.example.com": true,
	} {
		made, err := New(address, secret, "test", quick)
		if err != nil || made.Exposed() != exposed || strings.HasSuffix(made.address, "/api/v2") {
			t.Errorf("%s: %+v, %v", address, made, err)
		}
	}
}

func TestANameStaysOnePartOfAPath(t *testing.T) {
	if path := Path("roles", "a/b ?c"); path != "/roles/a%2Fb%20%3Fc" {
		t.Error(path)
	}
}
