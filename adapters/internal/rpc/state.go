package rpc

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/status"

	"github.com/go-idem/idem/core/capture"
)

// State is what became of a key, in the words of docs/guide.md.
type State struct {
	// State is absent, running, unknown, completed, failed or expired.
	State string `json:"state"`

	// Instance names the record, as it does in refusals and logs.
	Instance string `json:"instance"`

	// Status is the HTTP status that docs/grpc.md gives to the code of the stored outcome: 200 is OK. It is 0 if no outcome is
	// stored, or if the state does not show it.
	Status int `json:"status"`

	// RetryAfter is the pause before it is worth asking for a running call again, and otherwise 0.
	RetryAfter time.Duration `json:"-"`
}

// State returns what became of a key of the caller, or the status of a refusal. procedure may lack the slash in front: with
// Key.PerRoute the key of another name would be absent, and its caller would take the call for one that was never sent. key is the
// value that the guarded call had in its metadata. header returns other metadata of the call that asks. The aliases of the key's
// name count as absent, because a key that the call itself carries is not the one that it asks about.
func (s *Server) State(
	ctx context.Context, procedure, key string, header func(name string) []string,
) (found State, refused *status.Status) {
	call := &Call{Procedure: "/" + strings.TrimPrefix(procedure, "/"), Header: func(name string) []string {
		for i, keyName := range s.keyNames {
			switch {
			case !strings.EqualFold(name, keyName):
			case i == 0:
				return []string{key}
			default:
				return nil
			}
		}
		return header(name)
	}}
	response := capture.Status(ctx, s.engine, s.request(ctx, call, nil))
	if _, _, _, err := split(response.Header); err == nil {
		return State{}, decode(response, nil).Status
	}
	if err := json.Unmarshal(response.Body, &found); err != nil {
		return State{}, unreadable(err).Status
	}
	for _, f := range response.Header {
		if seconds, err := strconv.Atoi(f.Value); err == nil && f.Name == "Retry-After" {
			found.RetryAfter = time.Duration(seconds) * time.Second
		}
	}
	return found, nil
}
