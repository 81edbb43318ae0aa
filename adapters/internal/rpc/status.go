package rpc

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/go-idem/idem/core"
)

// httpStatuses has the HTTP status by which Keep.Policy judges each code. With DefaultPolicy it follows:
//   - A code is stored if it says something definite about the operation. Each of these has a status of its own, so that
//     core.ReleaseOn can name it.
//   - PermissionDenied, ResourceExhausted and Unauthenticated free the key, because they are about the caller and the moment.
//   - After all others the same request runs again, because the server cannot vouch for what has happened. Canceled and Aborted
//     are among them: they ask the client to try again, and a stored one would be the response to each retry.
var httpStatuses = map[code.Code]int{
	code.Code_OK:                  200,
	code.Code_CANCELLED:           504,
	code.Code_UNKNOWN:             500,
	code.Code_INVALID_ARGUMENT:    400,
	code.Code_DEADLINE_EXCEEDED:   504,
	code.Code_NOT_FOUND:           404,
	code.Code_ALREADY_EXISTS:      409,
	code.Code_PERMISSION_DENIED:   403,
	code.Code_RESOURCE_EXHAUSTED:  429,
	code.Code_FAILED_PRECONDITION: 412,
	code.Code_ABORTED:             503,
	code.Code_OUT_OF_RANGE:        416,
	code.Code_UNIMPLEMENTED:       501,
	code.Code_INTERNAL:            500,
	code.Code_UNAVAILABLE:         503,
	code.Code_DATA_LOSS:           500,
	code.Code_UNAUTHENTICATED:     401,
}

// httpStatus returns the HTTP status of a code. A code that gRPC does not define counts as Unknown.
func httpStatus(c int32) int {
	if s, isDefined := httpStatuses[code.Code(c)]; isDefined {
		return s
	}
	return httpStatuses[code.Code_UNKNOWN]
}

// problemCodes has the status code of each refusal. FailedPrecondition is for those that depend on what happened under the key:
// the same request under another key could be accepted. InvalidArgument is for those that do not. Aborted and Unavailable, which
// have a RetryInfo, ask for the same request again.
var problemCodes = map[string]code.Code{
	"key-missing":          code.Code_INVALID_ARGUMENT,
	"key-empty":            code.Code_INVALID_ARGUMENT,
	"key-malformed":        code.Code_INVALID_ARGUMENT,
	"key-repeated":         code.Code_INVALID_ARGUMENT,
	"key-too-short":        code.Code_INVALID_ARGUMENT,
	"key-too-long":         code.Code_INVALID_ARGUMENT,
	"key-refused":          code.Code_INVALID_ARGUMENT,
	"first-sent-unknown":   code.Code_INVALID_ARGUMENT,
	"request-too-old":      code.Code_FAILED_PRECONDITION,
	"scope-missing":        code.Code_UNAUTHENTICATED,
	"quota-exceeded":       code.Code_RESOURCE_EXHAUSTED,
	"body-unreadable":      code.Code_INVALID_ARGUMENT,
	"body-too-large":       code.Code_INVALID_ARGUMENT,
	"fingerprint-mismatch": code.Code_FAILED_PRECONDITION,
	"in-progress":          code.Code_ABORTED,
	"claim-lost":           code.Code_ABORTED,
	"record-lost":          code.Code_FAILED_PRECONDITION,
	"outcome-unknown":      code.Code_FAILED_PRECONDITION,
	"retention-over":       code.Code_FAILED_PRECONDITION,
	"replay-refused":       code.Code_PERMISSION_DENIED,
	"replay-unavailable":   code.Code_UNAVAILABLE,
	"store-unavailable":    code.Code_UNAVAILABLE,
	"not-durable":          code.Code_UNAVAILABLE,
	"record-unreadable":    code.Code_UNAVAILABLE,
	"status-unsupported":   code.Code_UNIMPLEMENTED,
	"nested-engine":        code.Code_INTERNAL,
	codeOutcomeOmitted:     code.Code_DATA_LOSS,
}

// codeOutcomeOmitted is the code of a replay whose message was not stored. Over HTTP such a replay has the status of the response
// and no body; an empty message would look like a whole one.
const codeOutcomeOmitted = "outcome-omitted"

// domain is the Domain of every ErrorInfo. Clients tell by it that a Reason is one of this library.
const domain = "github.com/go-idem/idem"

// renderProblem is the Problems.Render of a Server: it returns a refusal in the form of stored outcomes.
func renderProblem(p core.Problem) *core.Response {
	s := problemStatus(p)
	response, err := encode(&Reply{Status: s})
	if err != nil { // a BaseURL that is no UTF-8
		response, _ = encode(&Reply{Status: &status.Status{Code: s.Code}})
	}
	return response
}

// problemStatus returns the status of a refusal, with the code in an ErrorInfo, and a RetryInfo if another try is worth it.
func problemStatus(p core.Problem) *status.Status {
	refusal, isKnown := problemCodes[p.Code]
	if !isKnown {
		refusal = code.Code_INTERNAL
	}
	info := &errdetails.ErrorInfo{
		Reason:   strings.ToUpper(strings.ReplaceAll(p.Code, "-", "_")),
		Domain:   domain,
		Metadata: map[string]string{"code": p.Code},
	}
	for name, value := range map[string]string{"type": p.Type, "instance": p.Instance} {
		if value != "" {
			info.Metadata[name] = value
		}
	}
	if p.SafeNewKey != nil {
		info.Metadata["safe_new_key"] = strconv.FormatBool(*p.SafeNewKey)
	}
	details := []proto.Message{info}
	if p.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.RetryAfter)})
	}
	return &status.Status{Code: int32(refusal), Message: p.Detail, Details: packed(details)}
}

// packed returns messages as the details of a status. A message that cannot be encoded is left out.
func packed(messages []proto.Message) (details []*anypb.Any) {
	for _, m := range messages {
		detail := &anypb.Any{}
		if err := anypb.MarshalFrom(detail, m, canonical); err == nil {
			details = append(details, detail)
		}
	}
	return details
}

// internal returns a reply with the code Internal. Its text is valid UTF-8, since protobuf encodes no other.
func internal(format string, args ...any) *Reply {
	text := strings.ToValidUTF8(fmt.Sprintf(format, args...), "?")
	return &Reply{Status: &status.Status{Code: int32(code.Code_INTERNAL), Message: text}}
}
