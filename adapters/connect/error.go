package idem

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// typeURL is the prefix of the types of details, which connect.ErrorDetail removes.
const typeURL = "type.googleapis.com/"

// asError returns the connect.Error in err, or nil.
func asError(err error) *connect.Error {
	var failure *connect.Error
	if errors.As(err, &failure) {
		return failure
	}
	return nil
}

// statusOf returns the status that Connect sends for the error of a handler, and nil for no error.
func statusOf(err error) *status.Status {
	if err == nil {
		return nil
	}
	failure := asError(err)
	if failure == nil {
		return &status.Status{Code: int32(plainCode(err)), Message: err.Error()}
	}
	s := &status.Status{Code: int32(failure.Code()), Message: failure.Message()}
	for _, d := range failure.Details() {
		s.Details = append(s.Details, &anypb.Any{TypeUrl: typeURL + d.Type(), Value: d.Bytes()})
	}
	return s
}

// plainCode returns the code that Connect sends for an error without a code.
func plainCode(err error) connect.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	}
	return connect.CodeUnknown
}

// errorOf returns the error with this status and metadata.
func errorOf(s *status.Status, meta http.Header) *connect.Error {
	return newError(connect.Code(s.GetCode()), errors.New(s.GetMessage()), s, meta)
}

// errorLike returns the error of a handler with other metadata. The handler may return one error from many calls, so that it is
// not changed.
func errorLike(err error, meta http.Header) *connect.Error {
	if failure := asError(err); failure != nil {
		return newError(failure.Code(), failure.Unwrap(), statusOf(err), meta)
	}
	return newError(plainCode(err), err, nil, meta)
}

// newError returns an error with the details of s.
func newError(code connect.Code, underlying error, s *status.Status, meta http.Header) *connect.Error {
	e := connect.NewError(code, underlying)
	for _, d := range s.GetDetails() {
		if detail, err := connect.NewErrorDetail(d); err == nil {
			e.AddDetail(detail)
		}
	}
	addAll(e.Meta(), meta)
	return e
}
