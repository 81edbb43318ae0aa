package core

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// statuses are the codes and their default statuses. Client programs switch on them: neither changes.
var statuses = map[string]int{
	"key-missing": 400, "key-empty": 400, "key-malformed": 400, "key-repeated": 400, "key-too-short": 400, "key-too-long": 400, "key-refused": 400,
	"first-sent-unknown": 400, "request-too-old": 412, "retention-over": 410, "quota-exceeded": 429, "not-durable": 503,
	"scope-missing": 401, "body-unreadable": 400, "body-too-large": 413, "fingerprint-mismatch": 422,
	"in-progress": 409, "claim-lost": 409, "record-lost": 409, "outcome-unknown": 409, "store-unavailable": 503, "record-unreadable": 503,
	"nested-engine": 500, "replay-refused": 403, "replay-unavailable": 503, "status-unsupported": 501,
}

// newKeys has the codes with safe_new_key, and its value. Programs act on it: a true that is wrong repeats a payment.
var newKeys = map[string]bool{
	"key-empty": true, "key-malformed": true,
	"request-too-old": false, "in-progress": false, "claim-lost": false, "record-lost": false, "outcome-unknown": false, "retention-over": false,
	"record-unreadable": false, "nested-engine": false, "replay-refused": false, "replay-unavailable": false,
}

func TestCodesAreStable(t *testing.T) {
	got := map[string]int{}
	for code, p := range problems {
		got[code] = p.Status
	}
	assert.Equal(t, statuses, got)
}

// eachProblem calls test with every code and the way it is refused under cfg.
func eachProblem(t *testing.T, cfg ProblemConfig, test func(t *testing.T, code string, result Result)) {
	refusals := newRefusals(cfg)
	for _, code := range slices.Sorted(maps.Keys(problems)) {
		t.Run(code, func(t *testing.T) { test(t, code, refusals.refuse(code, 0)) })
	}
}

// PRB-01, PRB-02.
func TestEveryProblemIsWhatItsHeaderSays(t *testing.T) {
	seen := map[string]bool{}
	eachProblem(t, ProblemConfig{BaseURL: defaultBaseURL}, func(t *testing.T, code string, result Result) {
		assert.Equal(t, code, result.Problem)
		assert.False(t, result.Replayed || result.Bypassed)
		r := result.Response
		assert.Equal(t, "application/problem+json", line(r, "Content-Type"))
		assert.Equal(t, strconv.Itoa(len(r.Body)), line(r, "Content-Length"))

		var body map[string]any
		require.NoError(t, json.Unmarshal(r.Body, &body))
		members := []string{"type", "title", "status", "detail", "code"}
		if isSafe, isKnown := newKeys[code]; isKnown {
			members = append(members, "safe_new_key")
			assert.Equal(t, isSafe, body["safe_new_key"])
		}
		assert.ElementsMatch(t, members, slices.Collect(maps.Keys(body)))
		assert.EqualValues(t, r.Status, body["status"])
		assert.Equal(t, statuses[code], r.Status)
		assert.Equal(t, code, body["code"])
		assert.NotEmpty(t, body["title"])
		assert.NotEmpty(t, body["detail"])

		location, err := url.Parse(body["type"].(string))
		require.NoError(t, err)
		assert.True(t, location.IsAbs(), location)
		for _, member := range []string{"type", "title"} {
			text := body[member].(string)
			assert.False(t, seen[text], "%s is also that of another code", text)
			seen[text] = true
		}
	})
}

// PRB-04, KEY-03: the line stands beside those that middleware sets, and says what the body says.
func TestALinkLeadsToTheTypeOfTheProblem(t *testing.T) {
	eachProblem(t, ProblemConfig{BaseURL: "https://example.com/errors#", Link: true}, func(t *testing.T, code string, result Result) {
		assert.Equal(t, []Field{{"Link", "<https://example.com/errors#" + code + `>; rel="describedby"`}}, result.Response.Added)
		assert.Empty(t, line(result.Response, "Link"))
	})
	eachProblem(t, ProblemConfig{BaseURL: defaultBaseURL}, func(t *testing.T, _ string, result Result) {
		assert.Empty(t, result.Response.Added, "by default there is none")
	})
}

// PRB-04.
func TestTypeBeginsWithTheConfiguredURL(t *testing.T) {
	eachProblem(t, ProblemConfig{BaseURL: "https://example.com/errors?code="}, func(t *testing.T, code string, result Result) {
		assert.Contains(t, string(result.Response.Body), `"type":"https://example.com/errors?code=`+code+`"`)
	})
}

// PRB-04.
func TestStatusIsOverriddenInHeaderAndBody(t *testing.T) {
	override := map[string]int{codeInProgress: 423, codeMismatch: 409}
	eachProblem(t, ProblemConfig{Status: override}, func(t *testing.T, code string, result Result) {
		want := statuses[code]
		if status, ok := override[code]; ok {
			want = status
		}
		assert.Equal(t, want, result.Response.Status)
		assert.Contains(t, string(result.Response.Body), `"status":`+strconv.Itoa(want))
	})
}

// PRB-04.
func TestRenderMakesTheWholeAnswer(t *testing.T) {
	render := func(p Problem) *Response { return &Response{Status: p.Status + 1, Body: []byte(p.Code + p.Type)} }
	cfg := ProblemConfig{BaseURL: "x:", Render: render, Status: map[string]int{codeInProgress: 423}}
	eachProblem(t, cfg, func(t *testing.T, code string, result Result) {
		assert.Equal(t, code, result.Problem)
		want := statuses[code]
		if code == codeInProgress {
			want = 423
		}
		assert.Equal(t, &Response{Status: want + 1, Body: []byte(code + "x:" + code)}, result.Response)
	})
}

func TestTheFieldsOfARenderedAnswerAreValid(t *testing.T) {
	fields := []Field{{"content-type", "text/plain"}, {"x a", "a"}, {"X-A", "a\r\nX-B: b"}}
	cfg := ProblemConfig{Render: func(Problem) *Response { return &Response{Header: fields} }}
	eachProblem(t, cfg, func(t *testing.T, _ string, result Result) {
		assert.Equal(t, []Field{{"Content-Type", "text/plain"}, {"X-A", "a  X-B: b"}}, result.Response.Header)
	})
	assert.Equal(t, "content-type", fields[0].Name, "it may be the same one for every problem")
}

// A server of net/http sends 200 in place of a status below 200, and panics at one that is none.
func TestARenderedAnswerWithoutAFinalStatusHasThatOfTheProblem(t *testing.T) {
	for _, status := range []int{0, 99, 199, 1000} {
		cfg := ProblemConfig{Render: func(Problem) *Response { return &Response{Status: status} }}
		eachProblem(t, cfg, func(t *testing.T, code string, result Result) {
			assert.Equal(t, statuses[code], result.Response.Status, status)
		})
	}
}

func TestRenderIsToldWhenToRetry(t *testing.T) {
	var seen Problem
	refusals := newRefusals(ProblemConfig{Render: func(p Problem) *Response { seen = p; return &Response{Status: p.Status} }})
	refusals.refuse(codeInProgress, 4*time.Second)
	assert.Equal(t, 4*time.Second, seen.RetryAfter)
	refusals.refuse(codeStoreUnavailable, 0)
	assert.Equal(t, time.Second, seen.RetryAfter, "the code's own")
	refusals.refuse(codeMismatch, 0)
	assert.Zero(t, seen.RetryAfter)
}

// A result without a response means that everything has been sent. Of a refusal nothing has.
func TestRefusalWithoutARenderedAnswerIsStillARefusal(t *testing.T) {
	eachProblem(t, ProblemConfig{BaseURL: "x:", Render: func(Problem) *Response { return nil }}, func(t *testing.T, code string, result Result) {
		require.NotNil(t, result.Response)
		assert.Equal(t, statuses[code], result.Response.Status)
	})
}

var positive = regexp.MustCompile(`^[1-9][0-9]*$`)

func TestRetryAfterIsThereWhenTheSameRequestIsWorthSendingAgain(t *testing.T) {
	again := []string{codeInProgress, codeClaimLost, codeStoreUnavailable, codeQuotaExceeded, codeNotDurable, codeReplayUnavailable}
	eachProblem(t, ProblemConfig{}, func(t *testing.T, code string, result Result) {
		if slices.Contains(again, code) {
			assert.Regexp(t, positive, line(result.Response, "Retry-After"))
			return
		}
		assert.Empty(t, line(result.Response, "Retry-After"))
	})
}

// FuzzProblem: whatever New accepts, a refusal is JSON that says what its header says, and no text of it ends a line or a link.
func FuzzProblem(f *testing.F) {
	codes := slices.Sorted(maps.Keys(problems))
	for i := range codes {
		f.Add("https://example.com/errors#", uint8(i), 0, int64(0))
		f.Add("urn:problem:", uint8(i), 423, int64(time.Hour))
	}
	f.Fuzz(func(t *testing.T, base string, code uint8, status int, left int64) {
		name := codes[int(code)%len(codes)]
		cfg := ProblemConfig{BaseURL: base, Link: true, Status: map[string]int{name: status}}
		if status == 0 {
			cfg.Status = nil
		}
		var wrong configErrors
		if cfg.validate(&wrong); len(wrong) > 0 {
			return
		}
		refusals := newRefusals(cfg)
		for _, after := range []time.Duration{0, retryAfter(time.Duration(left))} {
			checkRefusal(t, base, name, status, refusals.refuse(name, after))
		}
	})
}

var link = regexp.MustCompile(`^<([^<>"\x00-\x20\x7F-\x{10FFFF}]+)>; rel="describedby"$`)

func checkRefusal(t *testing.T, base, code string, status int, result Result) {
	t.Helper()
	r := result.Response
	var body map[string]any
	require.NoError(t, json.Unmarshal(r.Body, &body), "%s", r.Body)
	want := map[string]any{
		"type": base + code, "title": problems[code].Title, "detail": problems[code].Detail, "code": code, "status": float64(r.Status),
	}
	if isSafe, isKnown := newKeys[code]; isKnown {
		want["safe_new_key"] = isSafe
	}
	assert.Equal(t, want, body)
	assert.Equal(t, cmp.Or(status, statuses[code]), r.Status)
	assert.Equal(t, strconv.Itoa(len(r.Body)), line(r, "Content-Length"))
	require.Len(t, r.Added, 1)
	found := link.FindStringSubmatch(r.Added[0].Value)
	require.NotNil(t, found, "%q", r.Added[0].Value)
	assert.Equal(t, body["type"], found[1])
	for _, line := range slices.Concat(r.Header, r.Added) {
		assert.False(t, strings.ContainsAny(line.Name+line.Value, "\r\n\x00"), "%q", line)
		if line.Name == "Retry-After" {
			assert.Regexp(t, positive, line.Value)
		}
	}
}

// CON-02.
func TestRetryAfterNeverOutlastsTheLease(t *testing.T) {
	refusals := newRefusals(ProblemConfig{})
	for left := time.Duration(0); left < 25*time.Hour; left += left/7 + 333*time.Millisecond {
		text := line(refusals.refuse(codeInProgress, retryAfter(left)).Response, "Retry-After")
		require.Regexp(t, positive, text, "%v left", left)
		seconds, err := strconv.Atoi(text)
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Duration(seconds)*time.Second, max(left, time.Second), "%v left", left)
		assert.LessOrEqual(t, seconds, 5, "most runs end long before their lease")
	}
	for left, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Second: time.Second, 19 * time.Second: time.Second,
		20 * time.Second: 2 * time.Second, 39999 * time.Millisecond: 3 * time.Second, 50 * time.Second: 5 * time.Second, time.Hour: 5 * time.Second,
	} {
		assert.Equal(t, want, retryAfter(left), "%v left", left)
	}
}

// Refusals are made once and used by all requests at once.
func TestRefusalsDoNotChangeEachOther(t *testing.T) {
	refusals := newRefusals(ProblemConfig{})
	early, late := refusals.refuse(codeInProgress, time.Second), refusals.refuse(codeInProgress, 5*time.Second)
	early.Response.Header = append(early.Response.Header, Field{"X-Other", "v"})
	assert.Equal(t, "1", line(early.Response, "Retry-After"))
	assert.Equal(t, "5", line(late.Response, "Retry-After"))
	assert.Len(t, refusals.refuse(codeInProgress, 0).Response.Header, 3)
	assert.Len(t, refusals.refuse(codeMismatch, 0).Response.Header, 2)
}

// Types lead to an entry on this page, which begins with the status.
func TestEveryCodeIsExplainedInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/problems.md")
	require.NoError(t, err)
	for code, problem := range problems {
		_, entry, found := strings.Cut(string(page), "\n### "+code+"\n")
		assert.True(t, found, code)
		beginning := "Status " + strconv.Itoa(problem.Status)
		if problem.RetryAfter > 0 {
			beginning += ", with `Retry-After`"
		}
		assert.True(t, strings.HasPrefix(entry, beginning+"."), "%s: %s", code, beginning)
	}
}

// The page for clients has each code in one row, and says "again" for those that adapters/client sends again. body-unreadable and
// scope-missing are mended first.
func TestClientsAreToldWhatToDoAboutEveryCode(t *testing.T) {
	page, err := os.ReadFile("../docs/clients.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| (`[a-z-]+`(?:, `[a-z-]+`)*) \\| (.+) \\|$").FindAllStringSubmatch(string(page), -1)
	advice := map[string]string{}
	for _, row := range rows {
		for code := range strings.SplitSeq(row[1], ", ") {
			assert.NotContains(t, advice, code)
			advice[strings.Trim(code, "`")] = row[2]
		}
	}
	for code, problem := range problems {
		isRetried := slices.Contains([]int{429, 502, 503, 504}, problem.Status) || problem.Status == 409 && problem.RetryAfter > 0
		assert.Equal(t, isRetried, strings.HasPrefix(advice[code], "the same key again, after"), "%s: %s", code, advice[code])
		mayBeNew := problem.SafeNewKey != nil && *problem.SafeNewKey
		assert.Equal(t, mayBeNew, strings.Contains(advice[code], "a new key is safe"), "%s: %s", code, advice[code])
		assert.NotEmpty(t, advice[code], code)
	}
}

// PRB-05: the page has each code in one row, with what the problem says.
func TestThePageSaysWhenANewKeyIsSafe(t *testing.T) {
	page, err := os.ReadFile("../docs/problems.md")
	require.NoError(t, err)
	documented, said := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.+`) \\| (`true`|`false`|) ?\\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		for code := range strings.SplitSeq(row[1], ", ") {
			code = strings.Trim(code, "`")
			assert.False(t, documented[code], "%s has two rows", code)
			documented[code] = true
			if row[2] != "" {
				said[code] = row[2] == "`true`"
			}
		}
	}
	assert.Equal(t, newKeys, said)
	for code := range problems {
		assert.True(t, documented[code], "%s has no row", code)
	}
}

// PRB-05: a key that an engine with laxer rules has accepted may be in use.
func TestABadKeyIsNotCalledUnusedIfStricterRulesRefuseIt(t *testing.T) {
	refusals := newRefusals(ProblemConfig{})
	for _, code := range []string{codeKeyEmpty, codeKeyMalformed} {
		assert.Contains(t, string(refusals.refuseKey(code, &KeyConfig{}).Response.Body), `"safe_new_key":true`)
		assert.NotContains(t, string(refusals.refuseKey(code, &KeyConfig{Strict: true}).Response.Body), "safe_new_key")
		assert.NotContains(t, string(refusals.refuseKey(code, &KeyConfig{Aliases: []string{"X-Key"}}).Response.Body), "safe_new_key")
	}
}

func TestScopesThatAreReadyMade(t *testing.T) {
	assert.NotEmpty(t, SingleTenant(context.Background(), nil), "SCP-04: an empty scope is refused")
	assert.Empty(t, ScopeByAdapter(context.Background(), nil))
}

// line returns the value of the first line named name; "" when there is none.
func line(r *Response, name string) string {
	for _, f := range r.Header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}
