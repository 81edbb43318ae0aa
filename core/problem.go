package core

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-idem/idem/core/internal/recordname"
	"github.com/go-idem/idem/core/internal/wire"
)

// Problem describes a refused request in the terms of RFC 9457. Each code has fixed texts, which never contain data of the
// request (PRB-02, PRB-03).
type Problem struct {
	Type       string        `json:"type"`   // an absolute URI: ProblemConfig.BaseURL followed by the code
	Title      string        `json:"title"`  // a short summary, one per code
	Status     int           `json:"status"` // the HTTP status
	Detail     string        `json:"detail"` // what the client can do
	Code       string        `json:"code"`   // stable: client programs switch on it
	RetryAfter time.Duration `json:"-"`      // after this time the same request is worth another try; 0: it is not

	// SafeNewKey says whether a program may send the operation again under a new key. True: nothing has run under the key, and
	// nothing will. False: the operation has happened, or it may have. Nil: the service cannot tell (PRB-05).
	SafeNewKey *bool `json:"safe_new_key,omitempty"`

	// Instance is a URI that names the record of the request for operators, without its scope and key. It is empty if the scope
	// of the request is not known (PRB-06). [github.com/go-idem/idem/core/operator] finds the record.
	Instance string `json:"instance,omitempty"`
}

// The codes of problems. docs/problems.md explains them to clients.
const (
	codeKeyMissing        = "key-missing"
	codeKeyEmpty          = "key-empty"
	codeKeyMalformed      = "key-malformed"
	codeKeyRepeated       = "key-repeated"
	codeKeyTooShort       = "key-too-short"
	codeKeyTooLong        = "key-too-long"
	codeKeyRefused        = "key-refused"
	codeFirstSentUnknown  = "first-sent-unknown"
	codeRequestTooOld     = "request-too-old"
	codeScopeMissing      = "scope-missing"
	codeQuotaExceeded     = "quota-exceeded"
	codeBodyUnreadable    = "body-unreadable"
	codeBodyTooLarge      = "body-too-large"
	codeMismatch          = "fingerprint-mismatch"
	codeInProgress        = "in-progress"
	codeClaimLost         = "claim-lost"
	codeRecordLost        = "record-lost"
	codeOutcomeUnknown    = "outcome-unknown"
	codeRetentionOver     = "retention-over"
	codeReplayRefused     = "replay-refused"
	codeReplayUnavailable = "replay-unavailable"
	codeStoreUnavailable  = "store-unavailable"
	codeNotDurable        = "not-durable"
	codeRecordUnreadable  = "record-unreadable"
	codeStatusUnsupported = "status-unsupported"
	codeNestedEngine      = "nested-engine"
)

// problems has the default status and the texts of each code.
var problems = map[string]Problem{
	codeKeyMissing: {
		Status: 400, Title: "Idempotency key missing",
		Detail: "Send an Idempotency-Key header with a value that is unique to this operation, and send the same value when " +
			"you retry it.",
	},
	codeKeyEmpty: {
		Status: 400, Title: "Idempotency key empty", SafeNewKey: isSafe,
		Detail: "The key header is there but its value is empty. Send a unique value, for example a UUID.",
	},
	codeKeyMalformed: {
		Status: 400, Title: "Idempotency key malformed", SafeNewKey: isSafe,
		Detail: "Send visible ASCII characters without quotes, commas or semicolons, or one quoted string with inner quotes " +
			"and backslashes escaped.",
	},
	codeKeyRepeated: {
		Status: 400, Title: "Idempotency key repeated",
		Detail: "The key header is there more than once. Send exactly one key.",
	},
	codeKeyTooShort: {
		Status: 400, Title: "Idempotency key too short",
		Detail: "Send a longer key, for example a UUID.",
	},
	codeKeyTooLong: {
		Status: 400, Title: "Idempotency key too long",
		Detail: "Send a shorter key, for example a UUID.",
	},
	codeKeyRefused: {
		Status: 400, Title: "Idempotency key not accepted",
		Detail: "This service accepts only keys of a certain form, and this key has another form. See the documentation " +
			"of the service.",
	},
	codeFirstSentUnknown: {
		Status: 400, Title: "Time of first sending unknown",
		Detail: "Say when this request was first sent: in a Repeatability-First-Sent header with an HTTP date, or in a version " +
			"7 UUID as key. Repeat it unchanged in retries.",
	},
	codeRequestTooOld: {
		Status: 412, Title: "Request too old", SafeNewKey: isUnsafe,
		Detail: "This request was first sent so long ago that its outcome may have been forgotten. It was not run. Look the " +
			"operation up before you send it under a new key.",
	},
	codeScopeMissing: {
		Status: 401, Title: "Caller not known",
		Detail: "A key belongs to a caller, and the service could not tell who the caller of this request is. Authenticate first.",
	},
	codeQuotaExceeded: {
		Status: 429, Title: "Too many keys", RetryAfter: time.Second,
		Detail: "This caller has used as many idempotency keys as it may for now. Nothing was stored; send the request again " +
			"later with the same key.",
	},
	codeBodyUnreadable: {
		Status: 400, Title: "Request body unreadable",
		Detail: "The body ended early or could not be read. Nothing was done; send the whole request again.",
	},
	codeBodyTooLarge: {
		Status: 413, Title: "Request body too large",
		Detail: "A request with an idempotency key is compared by its whole body, and this one is over the limit. Nothing was " +
			"done.",
	},
	codeMismatch: {
		Status: 422, Title: "Idempotency key used for another request",
		Detail: "This key came with another method, path, query or body before. Repeat that request unchanged, or use a new " +
			"key. The earlier outcome stands.",
	},
	codeInProgress: {
		Status: 409, Title: "Request in progress", RetryAfter: time.Second, SafeNewKey: isUnsafe,
		Detail: "A request with this key is being processed. Send it again later to receive its outcome.",
	},
	codeClaimLost: {
		Status: 409, Title: "Claim lost", RetryAfter: time.Second, SafeNewKey: isUnsafe,
		Detail: "This request ran and then lost its claim on the key: it took too long, and a later attempt may have the key, or its " +
			"effects were not committed. Send it again to receive the outcome that counts.",
	},
	codeRecordLost: {
		Status: 409, Title: "Record lost", SafeNewKey: isUnsafe,
		Detail: "This request ran, and the service lost the record of its key meanwhile. The operation may have happened, and the " +
			"same request would run again. Do not send it again. Look the operation up, or ask the operator of this service.",
	},
	codeOutcomeUnknown: {
		Status: 409, Title: "Outcome unknown", SafeNewKey: isUnsafe,
		Detail: "The outcome of an earlier request with this key is not known, so the request is not run again. Look the operation " +
			"up, or ask the operator of this service.",
	},
	codeRetentionOver: {
		Status: 410, Title: "Outcome no longer kept", SafeNewKey: isUnsafe,
		Detail: "A request with this key was answered so long ago that its outcome is forgotten. It is not run again. Look the " +
			"operation up before you send it under a new key.",
	},
	codeReplayRefused: {
		Status: 403, Title: "Outcome not shown", SafeNewKey: isUnsafe,
		Detail: "A request with this key was answered before, and its outcome is not shown to this caller now. It was not run again.",
	},
	codeReplayUnavailable: {
		Status: 503, Title: "Outcome cannot be shown now", SafeNewKey: isUnsafe, RetryAfter: time.Second,
		Detail: "A request with this key was answered before, and the service could not find out whether its outcome may be shown. " +
			"It was not run again. Send it again later with the same key.",
	},
	codeStoreUnavailable: {
		Status: 503, Title: "Idempotency store unavailable", RetryAfter: time.Second,
		Detail: "The request could not be checked against earlier ones. Send it again later with the same key.",
	},
	codeNotDurable: {
		Status: 503, Title: "Store not durable", RetryAfter: time.Second,
		Detail: "The request could not be recorded as safely as this service asks for, so it was not run. Send it again later " +
			"with the same key.",
	},
	codeRecordUnreadable: {
		Status: 503, Title: "Record unreadable", SafeNewKey: isUnsafe,
		Detail: "This process of the service cannot read the record of this key: one with a newer version or other settings wrote " +
			"it, or it is damaged. Nothing was run or replayed. Send the request again later with the same key. If this lasts, " +
			"ask the operator of this service.",
	},
	codeStatusUnsupported: {
		Status: 501, Title: "Status not supported",
		Detail: "This service cannot say what became of a key. Send the request again with the same key to receive its outcome.",
	},
	codeNestedEngine: {
		Status: 500, Title: "Two engines on one route", SafeNewKey: isUnsafe,
		Detail: "Two idempotency engines with different rules guard this route, and those of the inner one cannot hold. The inner " +
			"engine did not run the handler. Operators: let the outer engine skip the route, or remove the inner one.",
	},
}

// What Problem.SafeNewKey points to. Both are only read.
var (
	isSafe   = new(true)
	isUnsafe = new(false)
)

// refusals has every problem under one ProblemConfig.
type refusals struct {
	problems map[string]Problem
	hasLink  bool
	render   func(Problem) *Response
	own      []engineField // which render cannot set
}

// newRefusals returns the problems under cfg.
func newRefusals(cfg ProblemConfig, own ...engineField) refusals {
	r := refusals{map[string]Problem{}, cfg.Link, cfg.Render, own}
	for code, p := range problems {
		p.Code, p.Type = code, cfg.BaseURL+code
		if status := cfg.Status[code]; status != 0 {
			p.Status = status
		}
		r.problems[code] = p
	}
	return r
}

// refuse returns the result of a request that is refused with this code. Its RetryAfter is retryAfter, or that of the code if
// that is longer.
func (r *refusals) refuse(code string, retryAfter time.Duration) Result {
	problem := r.problems[code]
	problem.RetryAfter = max(problem.RetryAfter, retryAfter)
	return r.result(problem)
}

// refuseKey is refuse for a key that is missing or bad. If an option of cfg is stricter than its default, the key may have been
// good before that was set, and so may be in use.
func (r *refusals) refuseKey(code string, cfg *KeyConfig) Result {
	problem := r.problems[code]
	if cfg.Strict || len(cfg.Aliases) > 0 {
		problem.SafeNewKey = nil
	}
	return r.result(problem)
}

// result returns the result of a request with this problem.
func (r *refusals) result(problem Problem) Result {
	result := Result{Problem: problem.Code, RetryAfter: problem.RetryAfter}
	if r.render != nil {
		if rendered := r.render(problem); rendered != nil {
			own := *rendered // a Render function may return one value for every problem
			own.Header = validFields(own.Header)
			for _, f := range r.own {
				own.Header = wire.ReplaceField(own.Header, Field{f.name, ""})
			}
			if !isFinalResponse(&own) {
				own.Status = problem.Status
			}
			result.Response = &own
			return result
		}
	}
	body, _ := json.Marshal(problem) // strings, an int and a bool: cannot fail
	header := []Field{{"Content-Type", "application/problem+json"}, {"Content-Length", strconv.Itoa(len(body))}}
	if problem.RetryAfter > 0 {
		header = append(header, Field{"Retry-After", strconv.Itoa(int(problem.RetryAfter / time.Second))})
	}
	result.Response = &Response{Status: problem.Status, Header: header, Body: body}
	if r.hasLink {
		result.Response.Added = []Field{{"Link", "<" + problem.Type + `>; rel="describedby"`}}
	}
	return result
}

// refuse refuses the request with this code, as refusals.refuse does, and names its record.
func (k *keyed) refuse(code string, retryAfter time.Duration) Result {
	return k.refuseWith(code, func(p *Problem) { p.RetryAfter = max(p.RetryAfter, retryAfter) })
}

// refuseAfterRun is refuse for a request of which the engine knows that it has run, or is running.
func (k *keyed) refuseAfterRun(code string) Result {
	return k.refuseWith(code, func(p *Problem) { p.SafeNewKey = isUnsafe })
}

// refuseWith refuses the request with the problem of this code after change.
func (k *keyed) refuseWith(code string, change func(*Problem)) Result {
	problem := k.engine.refusals.problems[code]
	problem.Instance = recordname.Instance(k.claim.Key)
	change(&problem)
	result := k.engine.refusals.result(problem)
	k.echoIn(result.Response)
	return result
}

// retryAfter returns how long a client should wait for a claim whose lease lasts for left: a tenth of that, since most runs end
// long before their lease, at most 5 s, and at least 1 s, which is the least that Retry-After can express (CON-02).
func retryAfter(left time.Duration) time.Duration {
	return min(max(left/10, time.Second), 5*time.Second).Truncate(time.Second)
}

// ProblemConfig configures the responses of refused requests (PRB-04). docs/problems.md lists the codes.
type ProblemConfig struct {
	// BaseURL, followed by a code, is the type of a problem. Set it to a page of your own API's documentation. Default:
	// docs/problems.md in the project's repository.
	BaseURL string

	// Status overrides the HTTP status of the given codes, for example {"in-progress": 423}. Default: the statuses in
	// docs/problems.md.
	Status map[string]int

	// Link adds the header field Link: <type>; rel="describedby" to refusals (KEY-03). Default false.
	Link bool

	// Render returns the whole response of a refusal, or nil for the default one. A status below 200 stands for that of the problem.
	// The header fields that only the engine sets, such as the marker of replays, are left out. Render must be safe for concurrent
	// use. Default nil.
	Render func(Problem) *Response
}

// withDefaults returns a copy that shares nothing with p, in which every unset field has its default.
func (p ProblemConfig) withDefaults() ProblemConfig {
	p.BaseURL = cmp.Or(p.BaseURL, defaultBaseURL)
	p.Status = maps.Clone(p.Status)
	return p
}

// defaultBaseURL is the default of ProblemConfig.BaseURL.
const defaultBaseURL = "https://github.com/go-idem/idem/blob/main/docs/problems.md#"

// validate checks that problems have valid types, statuses and codes.
func (p *ProblemConfig) validate(f *configErrors) {
	base, err := url.Parse(p.BaseURL)
	f.require(err == nil && base.IsAbs(), "Problems.BaseURL", "%q is not an absolute URL", p.BaseURL)
	f.require(strings.Trim(p.BaseURL, uriCharacters) == "", "Problems.BaseURL",
		"%q: write what is not a URI character with %%, or it would end a Link", p.BaseURL)
	f.require(p.Render == nil || !p.Link, "Problems.Link", "is for the default answer, which Problems.Render replaces")
	for _, code := range slices.Sorted(maps.Keys(p.Status)) {
		_, known := problems[code]
		f.require(known, "Problems.Status",
			"there is no code %q; the codes are %s", code, strings.Join(slices.Sorted(maps.Keys(problems)), ", "))
		f.require(validStatus(p.Status[code]), "Problems.Status", "%s: %d is not a 4xx or 5xx status", code, p.Status[code])
	}
}

// uriCharacters has the characters that a URI may contain (RFC 3986, section 2).
const uriCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/?#[]@!$&'()*+,;=%"

// validStatus reports whether status is a registered 4xx or 5xx status.
func validStatus(status int) bool { return http.StatusText(status) != "" && status >= 400 }
