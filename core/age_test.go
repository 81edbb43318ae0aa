package core_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core"
)

const firstSent = "Repeatability-First-Sent"

func young(limit time.Duration) func(*core.Config) {
	return func(c *core.Config) { c.Key.MaxAge = limit }
}

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(http.TimeFormat) }

// uuid7 is a version 7 UUID that was made so long ago.
func uuid7(d time.Duration) string {
	ms := time.Now().Add(-d).UnixMilli()
	return fmt.Sprintf("%08x-%04x-7abc-8def-0123456789ab", ms>>16, ms&0xFFFF)
}

// TTL-07.
func TestRequestsThatWereFirstSentLongAgoAreRefused(t *testing.T) {
	const tooOld, unknown = "request-too-old", "first-sent-unknown"
	type when = func() []string
	sent := func(d time.Duration) when { return func() []string { return []string{firstSent, ago(d)} } }
	made7 := func(d time.Duration) when { return func() []string { return []string{"Idempotency-Key", uuid7(d)} } }
	text := func(lines ...string) when { return func() []string { return lines } }
	for name, c := range map[string]struct {
		lines when
		code  string
	}{
		"just now":                        {sent(0), ""},
		"just under the limit":            {sent(time.Minute - time.Second), ""},
		"at the limit":                    {sent(time.Minute), tooOld},
		"in another century":              {text(firstSent, "Sunday, 06-Nov-94 08:49:37 GMT"), tooOld},
		"by a clock a little ahead":       {sent(-30 * time.Second), ""},
		"by a clock ahead by the limit":   {sent(-time.Minute), ""},
		"in the future":                   {sent(-2 * time.Minute), unknown},
		"in a far future":                 {text(firstSent, "Fri, 31 Dec 9999 23:59:59 GMT"), unknown},
		"before time began":               {text(firstSent, "Mon, 01 Jan 0001 00:00:00 GMT"), tooOld},
		"nothing said":                    {text(), unknown},
		"nothing in the line":             {text(firstSent, ""), unknown},
		"no date":                         {text(firstSent, "yesterday"), unknown},
		"a number":                        {text(firstSent, "1700000000"), unknown},
		"another zone":                    {text(firstSent, "2026-11-21T12:00:00+01:00"), unknown},
		"a UUIDv7 of now":                 {made7(0), ""},
		"a UUIDv7 under the limit":        {made7(time.Minute - time.Millisecond), ""},
		"an old UUIDv7":                   {made7(time.Minute), tooOld},
		"a UUIDv7 of the future":          {made7(-2 * time.Minute), unknown},
		"a UUIDv4, which has no time":     {text("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324"), unknown},
		"two lines":                       {func() []string { return []string{firstSent, ago(0), firstSent, ago(0)} }, unknown},
		"an old line and a young UUIDv7":  {func() []string { return []string{firstSent, ago(time.Hour), "Idempotency-Key", uuid7(0)} }, tooOld},
		"a young line and an old UUIDv7":  {func() []string { return []string{firstSent, ago(0), "Idempotency-Key", uuid7(time.Hour)} }, ""},
		"a bad line beside a good UUIDv7": {func() []string { return []string{firstSent, "yesterday", "Idempotency-Key", uuid7(0)} }, unknown},
	} {
		inBubble(t, "TTL-07 "+name, func(t *testing.T) {
			f := newFixture(t, young(time.Minute))
			header := http.Header{}
			given := c.lines()
			for i := 0; i < len(given); i += 2 {
				header.Add(given[i], given[i+1])
			}
			if header.Get("Idempotency-Key") == "" {
				header.Set("Idempotency-Key", "K")
			}
			result := f.send(changed(func(r *core.Request) { r.Header = header.Values }), made)
			switch c.code {
			case "":
				f.answered(result, 201, "made")
			case tooOld:
				f.refused(result, 412, tooOld)
			case unknown:
				f.refused(result, 400, unknown)
			}
			if c.code != "" {
				f.ran(0)
				assert.Zero(t, f.calls(), "calls of the store")
			}
		})
	}
}

// TTL-07: from the first sending on there is either an outcome to replay or a refusal, and never a second run.
func TestNoRetryComesSoLateThatItRunsAnew(t *testing.T) {
	inBubble(t, "TTL-07", func(t *testing.T) {
		f := newFixture(t, young(retention))
		r := changed(lines(firstSent, ago(0)))
		f.answered(f.send(r, made), 201, "made")
		for time.Sleep(retention - time.Second); f.runs.Load() == 1; time.Sleep(time.Second) {
			result := f.send(r, made)
			if !result.Replayed {
				f.refused(result, 412, "request-too-old")
				break
			}
		}
		f.ran(1)
	})
}

func TestAgeIsOfNoInterestByDefault(t *testing.T) {
	f := newFixture(t)
	f.answered(f.send(changed(lines(firstSent, "yesterday")), made), 201, "made")
}

func TestSentAtIsToldTheKeyAndWins(t *testing.T) {
	inBubble(t, "TTL-07", func(t *testing.T) {
		f := newFixture(t, young(time.Minute), func(c *core.Config) {
			c.Key.SentAt = func(r *core.Request, key string) (time.Time, bool) {
				assert.Equal(t, "K", key)
				return time.Now().Add(-time.Hour), r.Path != "/unknown"
			}
		})
		f.refused(f.send(changed(keys(`"K"`), path("/unknown")), made), 400, "first-sent-unknown")
		f.refused(f.send(changed(keys(`"K"`)), made), 412, "request-too-old")
		f.ran(0)
	})
}
