package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/go-idem/idem/core"
)

// statusField is the name of the field that ends the trailer in the header of a stored response. Its value is the status code.
// The trailer is in front, because the engine appends its own fields, which belong to the header.
const statusField = "grpc-status"

// encode returns a reply in the form in which the engine stores it. The header has the trailer, statusField, and the header, in
// this order; the body is the message, or the status if that is not OK. The error says that the message cannot be encoded.
func encode(r *Reply) (*core.Response, error) {
	failure := validStatus(r.Status)
	var body proto.Message = failure
	if failure == nil {
		message, isMessage := r.Message.(proto.Message)
		if !isMessage || !message.ProtoReflect().IsValid() {
			return nil, fmt.Errorf("a %T is no protobuf message, or it is nil", r.Message)
		}
		body = message
	}
	encoded, err := canonical.Marshal(body)
	if err != nil {
		return nil, err
	}
	c := failure.GetCode()
	header := append(ownFields(r.Trailer), core.Field{Name: statusField, Value: strconv.Itoa(int(c))})
	return &core.Response{Status: httpStatus(c), Header: append(header, ownFields(r.Header)...), Body: encoded}, nil
}

// validStatus returns s with a text that protobuf can encode, and with a code that is an error: a handler that returns an error
// has failed, even if the error has the code OK. gRPC sends the same replacement for bytes that are no UTF-8.
func validStatus(s *status.Status) *status.Status {
	if s == nil || s.Code != int32(code.Code_OK) && utf8.ValidString(s.Message) {
		return s
	}
	c := cmp.Or(s.Code, int32(code.Code_UNKNOWN))
	return &status.Status{Code: c, Message: strings.ToValidUTF8(s.Message, "\uFFFD"), Details: s.Details}
}

// Response returns the stored form of a message, or of a status if s is not nil, for Lease.OnUnknown and Engine.Resolve. It
// returns nil if the message cannot be encoded.
func Response(message proto.Message, s *status.Status) *core.Response {
	response, err := encode(&Reply{Message: message, Status: s})
	if err != nil {
		return nil
	}
	return response
}

// ownFields returns the fields that a handler may set. A field of the handler with the name of statusField would end the trailer
// at the wrong place.
func ownFields(fields []core.Field) []core.Field {
	return slices.DeleteFunc(slices.Clone(fields), func(f core.Field) bool { return strings.EqualFold(f.Name, statusField) })
}

// split reverses what encode does with header and trailer. c is the status code. The error says that the header is not that of a
// stored call.
func split(fields []core.Field) (header, trailer []core.Field, c int32, err error) {
	at := slices.IndexFunc(fields, func(f core.Field) bool { return strings.EqualFold(f.Name, statusField) })
	if at < 0 {
		return nil, nil, 0, fmt.Errorf("there is no %s", statusField)
	}
	number, err := strconv.ParseInt(fields[at].Value, 10, 32)
	return sendable(fields[at+1:]), sendable(fields[:at]), int32(number), err
}

// sendable returns the fields without those that describe an HTTP response, which the engine adds.
func sendable(fields []core.Field) []core.Field {
	return slices.DeleteFunc(slices.Clone(fields), func(f core.Field) bool {
		return strings.EqualFold(f.Name, "Content-Length") || strings.EqualFold(f.Name, statusField)
	})
}

// decode returns what is sent for a stored outcome of a method, or for a refusal. method may be nil for a refusal, which has no
// message. The two codes of an error must agree, in the header and in the body; an outcome in which they differ is damaged.
func decode(r *core.Response, method protoreflect.MethodDescriptor) *Reply {
	header, trailer, c, err := split(r.Header)
	if err != nil {
		return unreadable(err)
	}
	reply := &Reply{Header: header, Trailer: trailer}
	switch {
	case r.Omitted:
		reply.Status = omitted(c)
	case c == int32(code.Code_OK):
		message := newResponse(method)
		reply.Message, err = message, proto.Unmarshal(r.Body, message)
	default:
		reply.Status = &status.Status{}
		if err = proto.Unmarshal(r.Body, reply.Status); err == nil && reply.Status.Code != c {
			err = fmt.Errorf("it has two codes, %d and %d", c, reply.Status.Code)
		}
	}
	if err != nil {
		return unreadable(err)
	}
	return reply
}

// omitted returns the status of a replay whose body was not stored. The code of an error is known; a message is lost.
func omitted(c int32) *status.Status {
	const text = "The operation has happened, and its response was too long to be stored. It was not run again."
	s := problemStatus(core.Problem{Code: codeOutcomeOmitted, Detail: text, SafeNewKey: new(bool)})
	if c != int32(code.Code_OK) {
		s.Code = c
	}
	return s
}

// unreadable returns the reply for an outcome that is none of a unary call, or of another type of message.
func unreadable(err error) *Reply {
	const text = "The record of this key cannot be read. Nothing was run or replayed. Ask the operator of this service: "
	return &Reply{Status: problemStatus(core.Problem{
		Code: "record-unreadable", Detail: text + strings.ToValidUTF8(err.Error(), "?"), SafeNewKey: new(bool),
	})}
}
