package main

import "strings"

// lineTexts say of a function what its lines in the profile are, and what was done about them. The longest name that a
// function begins with counts.
var lineTexts = map[string]string{
	"core/redisstore.(*query).sendAlone": "a round trip: go-redis and the kernel. Done: one for each verb, of one command; begin " +
		"returns a short record itself; redisstore.Batch lets requests share it",
	"core/redisstore.(*Store).send": "the way to the round trip, and the look at its error. Done: nothing is resolved or copied for a " +
		"single server",
	"core/redisstore.(*batcher)": "round trips that requests share. Done: up to 128 requests in one, and two under way at a time",
	"core/redisstore.(*Store).name": "the record's name in base64. Done: the hash is made once for all verbs, and encoded on the stack. " +
		"Left: the name is made for each verb, since a claim does not carry it",
	"core/redisstore.(*Store).newQuery": "one value for all of a call. Done: arguments point into it, and none is copied to the heap",
	"core/redisstore.(*query)":          "the command of a round trip, as go-redis makes it",
	"core/redisstore.completedRecord":   "the whole record. Done: made here in one piece, so that no script joins strings",
	"core/redisstore.readAnswer":        "begin's answer, taken apart",
	"core/internal/deadline.(*Context).": "the context of a call: go-redis looks at its end before it takes a connection. Done: one channel, " +
		"one timer for all calls of an engine, and no watch of the client in the first 20 ms of a call",
	"core/internal/deadline.(*Queue).":    timerText,
	"core/internal/deadline.(*Timer).":    timerText,
	"core/internal/deadline.(*Detached).": "the context of a run. Done: what can be cancelled is made when a handler asks",
	"core.(*runContext).":                 "the context of a run",
	"core.(*KeyConfig)":                   "the key, read from the header. Done: no copy of it is made",
	"core.(*operation).ask":               "the owner: 16 random bytes. Done: read once for all verbs. Left: nobody may guess it",
	"core.(*operation).keep":              "the lease's keeper. Done: a part of the operation, without a timer or a context of its own before the first extension",
	"core.(*operation).execute": "a run and what follows it: the handler, the final verb, and the guard against a panic. Done: the " +
		"first extensions wait in one queue of the engine, without a timer each",
	"core.(*Engine).operation":  "one value for all of a request. Done: claim, keeper and contexts are parts of it",
	"core.headerRules":          "which header lines are kept. Done: names are lowered, and kept lines listed, on the stack; one map tells",
	"core.encodeOutcome":        "the outcome and its checksum. Done: one buffer, of the length that is needed; CRC-32C is an instruction",
	"core.decodeOutcome":        "the outcome of a replay, taken apart. Done: body and lines share its memory",
	"core.hashing":              "SHA-256 of key and request. Done: states are used again",
	"core.(*hashState)":         "SHA-256 of key and request. Done: states are used again, and the parts go in as one",
	"core.(*FingerprintConfig)": "SHA-256 of the request. Done: states are used again",
	"core.FingerprintConfig":    "SHA-256 of the request. Done: states are used again",
	"core/capture.readAll": "the request's body, read to make the fingerprint; the handler reads the same bytes. Done: one " +
		"buffer, of Content-Length",
	"core/capture.(*Exchange).For":     "the request with the run's context, as net/http copies it: the handler must see both",
	"core/capture.(*Exchange).running": "what a handler gets: writer and request. Done: one piece; a replay does without",
	"core/capture.(*Exchange).Request": "the request as the engine reads it. Left: its two functions, which every adapter has of its own kind",
	"core/capture.NewExchange":         "what a request is read through",
	"core/capture.(*Exchange).NewWriter": "the handler's header map: what is set around it is no part of the outcome. Done: a copy only " +
		"where something is set",
	"core/capture.send":           "net/http writes status, header lines and body: a bare handler pays for this, too",
	"core/capture.(*Writer).":     "the answer, held back until it is kept",
	"core/capture.changes":        "what the handler changed in the header. Done: one list, as long as the header",
	"core/capture.replaceLines":   "header lines of the answer, put into net/http's map",
	"adapters/http.HTTP.func1.1.": "the handler itself, and the request's context for it",
	"adapters/http.HTTP":          "the middleware around the handler",
}

const timerText = "deadlines of calls and first extensions of runs. Done: all timers of an engine share one of the runtime's, which " +
	"is not set again when one of them stops"

// lineText returns the text of a function, "—" for one without.
func lineText(function string) string {
	text, longest := "—", 0
	for name, t := range lineTexts {
		if strings.HasPrefix(function, name) && len(name) > longest {
			text, longest = t, len(name)
		}
	}
	return text
}
