package core_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
)

// What is kept of an answer, what is added to it, and for how long.

func line(name, value string) core.Field { return core.Field{Name: name, Value: value} }

// RPL-15, RPL-16, RPL-12.
func TestAllowedAndDeniedLines(t *testing.T) {
	session := answers(201, "made", line("Set-Cookie", "a=1"), line("Set-Cookie", "b=2"), line("X-Kept", "kept"), line("Ratelimit-Limit", "10"),
		line("Connection", "X-Hop, X-Request-Id"), line("X-Hop", "hop"), line("X-Request-Id", "first"))
	for name, c := range map[string]struct {
		allow, deny []string
		want        []core.Field
	}{
		"by default": {nil, nil, []core.Field{line("X-Kept", "kept")}},
		"RPL-15 cookies are allowed": {[]string{"set-COOKIE"}, nil,
			[]core.Field{line("Set-Cookie", "a=1"), line("Set-Cookie", "b=2"), line("X-Kept", "kept")}},
		"RPL-16 a limit is allowed":                      {[]string{"RateLimit-Limit"}, nil, []core.Field{line("X-Kept", "kept"), line("Ratelimit-Limit", "10")}},
		"RPL-12 what Connection names is kept by nobody": {[]string{"X-Hop", "X-Request-Id"}, nil, []core.Field{line("X-Kept", "kept")}},
		"a line of its own is denied":                    {nil, []string{"x-kept"}, []core.Field{}},
		"denied besides, and allowed":                    {[]string{"Set-Cookie"}, []string{"X-Kept", "Date"}, []core.Field{line("Set-Cookie", "a=1"), line("Set-Cookie", "b=2")}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c2 *core.Config) { c2.Keep.AllowHeaders, c2.Keep.DenyHeaders = c.allow, c.deny })
			first := f.send(request("K", "B"), session)
			assert.Len(t, first.Response.Header, 7, "the first client gets them all")
			again := f.send(request("K", "B"), session)
			f.replayed(again, 201, "made")
			assert.Equal(t, append(c.want, line(marker, "true"), line("Content-Length", "4")), again.Response.Header)
		})
	}
}

func TestADeniedLineIsNotTakenAwayEither(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Keep.DenyHeaders = []string{"X-Denied", "x-zone"} })
	removes := func(context.Context) (*core.Response, error) {
		return &core.Response{Status: 200, Removed: []string{"X-Denied", "X-ZONE", "X-Removed", "Set-Cookie", "no name"}}, nil
	}
	f.send(request("K", "B"), removes)
	for _, f := range []*fixture{f, f.with(func(c *core.Config) { c.Keep.DenyHeaders = nil })} {
		assert.Equal(t, []string{"X-Removed"}, f.send(request("K", "B"), removes).Response.Removed)
	}
}

// What was kept under yesterday's rules, or another engine's, is replayed under those of the engine that replays.
func TestAReplayHasOnlyTheLinesThatItsOwnEngineKeeps(t *testing.T) {
	careless := newFixture(t, func(c *core.Config) {
		c.Keep.AllowHeaders, c.Keep.Blobs, c.Keep.BlobsFrom = []string{"Set-Cookie", "X-Request-Id"}, newShelf(), 10
	})
	careful := careless.with(func(c *core.Config) {
		c.Keep.AllowHeaders, c.Keep.DenyHeaders = []string{"X-Request-Id"}, []string{"x-KEPT"}
	})
	for key, body := range map[string]string{"short": "made", "in-a-blob": "made at great length"} {
		answer := func(context.Context) (*core.Response, error) {
			return &core.Response{Status: 201, Body: []byte(body), Removed: []string{"X-Kept", "X-Gone"}, Header: []core.Field{
				line("Set-Cookie", "a=1"), line("X-Kept", "1"), line("X-Request-Id", "2"), line("Content-Type", "text/plain"),
			}}, nil
		}
		careless.send(request(key, "B"), answer)
		for range 2 {
			again := careful.send(request(key, "B"), answer).Response
			assert.Equal(t, []core.Field{line("X-Request-Id", "2"), line("Content-Type", "text/plain"), line(marker, "true"), line("Content-Length", fmt.Sprint(len(body)))}, again.Header)
			assert.Equal(t, []string{"X-Gone"}, again.Removed)
		}
		assert.Len(t, careless.send(request(key, "B"), answer).Response.Header, 6, "and by its own rules")
	}
	careless.ran(2)
}

// RPL-25, RPL-29.
func TestTheMarkerAsTheConfigSays(t *testing.T) {
	exposed := []core.Field{line("Access-Control-Expose-Headers", marker)}
	forged := answers(201, "made", line(marker, "forged"))
	for name, c := range map[string]struct {
		change        func(*core.KeepConfig)
		first, replay []string
		added         []core.Field
	}{
		"by default":           {func(*core.KeepConfig) {}, nil, []string{"true"}, nil},
		"none":                 {func(k *core.KeepConfig) { k.NoMarker = true }, nil, nil, nil},
		"on all":               {func(k *core.KeepConfig) { k.MarkAll = true }, []string{"false"}, []string{"true"}, nil},
		"RPL-29 exposed":       {func(k *core.KeepConfig) { k.ExposeMarker = true }, nil, []string{"true"}, exposed},
		"RPL-29 all, exposed":  {func(k *core.KeepConfig) { k.MarkAll, k.ExposeMarker = true, true }, []string{"false"}, []string{"true"}, exposed},
		"RPL-29 another name":  {func(k *core.KeepConfig) { k.Marker, k.ExposeMarker = "X-Seen", true }, nil, nil, []core.Field{line("Access-Control-Expose-Headers", "X-Seen")}},
		"none, with its limit": {func(k *core.KeepConfig) { k.NoMarker, k.MaxBody = true, 2 }, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c2 *core.Config) { c.change(&c2.Keep) })
			h := forged
			if f.Config().Keep.Marker != marker {
				h = made
			}
			first, again := f.send(request("K", "B"), h), f.send(request("K", "B"), h)
			assert.Equal(t, c.first, values(first.Response, marker))
			assert.Equal(t, c.added, first.Response.Added)
			assert.True(t, again.Replayed)
			assert.Equal(t, c.replay, values(again.Response, marker))
			assert.Equal(t, c.added, again.Response.Added)
			refused := f.send(request("K", "B'"), h)
			f.refused(refused, 422, "fingerprint-mismatch")
			assert.Empty(t, values(refused.Response, marker), "a refusal is neither first nor a replay")

			failed := f.send(request("K2", "B"), answers(503, "", line(marker, "forged")))
			if f.Config().Keep.Marker == marker {
				assert.Equal(t, c.first, values(failed.Response, marker), "nor is an answer that is not kept a replay")
			}
		})
	}
}

func TestWhatTheMarkerExposesIsNotKept(t *testing.T) {
	f := newFixture(t, func(c *core.Config) { c.Keep.ExposeMarker = true })
	h := answers(201, "made", line("Access-Control-Expose-Headers", "X-Total"))
	f.send(request("K", "B"), h)
	again := f.with(func(c *core.Config) { c.Keep.ExposeMarker = false }).send(request("K", "B"), h)
	assert.Equal(t, []string{"X-Total"}, values(again.Response, "Access-Control-Expose-Headers"), "the handler's own")
	assert.Empty(t, again.Response.Added)
}

// KeepConfig.LateRetry.
func TestALateRetryIsRefusedInsteadOfRun(t *testing.T) {
	remember := func(d time.Duration) func(*core.Config) {
		return func(c *core.Config) { c.Keep.LateRetry = d }
	}
	inBubble(t, "until the key is forgotten", func(t *testing.T) {
		f := newFixture(t, remember(retention))
		f.send(request("K", "B"), made)
		time.Sleep(retention - time.Millisecond)
		f.replayed(f.send(request("K", "B"), made), 201, "made")
		for _, pause := range []time.Duration{time.Millisecond, retention - time.Millisecond} {
			time.Sleep(pause)
			f.refused(f.send(request("K", "B"), made), 410, "retention-over")
			f.refused(f.send(request("K", "B'"), made), 410, "retention-over")
		}
		f.ran(1)
		time.Sleep(time.Millisecond)
		assert.Equal(t, 1, f.runsAgain(request("K", "B'")).Attempt, "it is new")
	})
	inBubble(t, "but only what had an outcome", func(t *testing.T) {
		f := newFixture(t, remember(retention))
		f.send(request("K", "B"), answers(500, ""))
		time.Sleep(retention)
		f.answered(f.send(request("K", "B'"), made), 201, "made")
	})
	inBubble(t, "and not by an engine that does not ask for it", func(t *testing.T) {
		f := newFixture(t, remember(retention))
		f.send(request("K", "B"), made)
		time.Sleep(retention)
		f.answered(f.with(remember(0)).send(request("K", "B"), made), 201, "made")
	})
	inBubble(t, "nor of what was kept without it", func(t *testing.T) {
		f := newFixture(t)
		f.send(request("K", "B"), made)
		time.Sleep(retention)
		f.answered(f.with(remember(retention)).send(request("K", "B"), made), 201, "made")
	})
	inBubble(t, "nor does anybody wait for it", func(t *testing.T) {
		f := newFixture(t, remember(retention), waiting(time.Hour))
		f.send(request("K", "B"), made)
		time.Sleep(retention)
		assert.Zero(t, elapsed(func() { f.refused(f.send(request("K", "B"), made), 410, "retention-over") }))
	})
}
