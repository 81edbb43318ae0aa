package rpctest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/go-idem/idem/adapters/internal/rpc"
	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/memstore"
	"github.com/go-idem/idem/core/storetest"
)

// testState is OPR-07.
func testState(t *testing.T, a Adapter) {
	store := storetest.NewFaulty(memstore.New())
	share := func(c *core.Config) { c.Store = store }
	handle, running, goOn := entered(Accepted)
	s := a.newService(t, handle, share)
	ask := a.State(NewEngine(t, share), rpc.Options{})
	is := func(key, state string, status int) rpc.State {
		t.Helper()
		found, refused := ask(t.Context(), Pay, key)
		require.Nil(t, refused)
		assert.Equal(t, state, found.State)
		assert.Equal(t, status, found.Status)
		assert.Equal(t, state == "running", found.RetryAfter > 0)
		assert.NotEmpty(t, found.Instance)
		return found
	}
	absent := is("k", "absent", 0)
	replies := make(chan Reply)
	go func() { replies <- s.pay() }()
	<-running
	assert.Equal(t, absent.Instance, is("k", "running", 0).Instance)
	goOn()
	<-replies
	is("k", "completed", 200)
	is(`"k"`, "completed", 200)

	for failure, want := range map[code.Code]struct {
		state  string
		status int
	}{
		code.Code_FAILED_PRECONDITION: {"completed", 412},
		code.Code_UNAVAILABLE:         {"failed", 0},
	} {
		s.handleWith(failing(failure))
		s.pay(keys(failure.String()))
		is(failure.String(), want.state, want.status)
	}

	testStateOfARoute(t, a, share)

	begins := store.Calls("begin")
	foreign, refused := a.State(NewEngine(t, share), rpc.Options{Scope: func(context.Context) string { return "another caller" }})(
		t.Context(), Pay, "k")
	assert.Nil(t, refused)
	assert.Equal(t, "absent", foreign.State)
	assert.Equal(t, begins, store.Calls("begin"), "a question claims nothing")

	_, refused = ask(t.Context(), Pay, "")
	Reply{Status: refused}.assertRefused(t, code.Code_INVALID_ARGUMENT, "key-empty")
	store.Inject("look", storetest.Before, 1)
	_, refused = ask(t.Context(), Pay, "k")
	Reply{Status: refused}.assertRefused(t, code.Code_UNAVAILABLE, "store-unavailable")
}

// testStateOfARoute: with Key.PerRoute a key is one of a procedure, which may be named without its slash.
func testStateOfARoute(t *testing.T, a Adapter, share func(*core.Config)) {
	perRoute := func(c *core.Config) { c.Key.PerRoute = true }
	routed := a.newService(t, Accepted, share, perRoute)
	routed.pay(keys("routed"))
	ofRoute := a.State(NewEngine(t, share, perRoute), rpc.Options{})
	for _, procedure := range []string{Pay, strings.TrimPrefix(Pay, "/")} {
		found, refused := ofRoute(t.Context(), procedure, "routed")
		require.Nil(t, refused)
		assert.Equal(t, "completed", found.State, procedure)
	}
}
