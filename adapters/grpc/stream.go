package idem

import (
	"errors"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/go-idem/idem/adapters/internal/rpc"
)

// heldStream is the grpc.ServerTransportStream of a guarded handler. It holds back what the handler sets. Like the stream of the
// server, it is safe for concurrent use.
type heldStream struct {
	method string

	mu              sync.Mutex
	header, trailer metadata.MD
	isHeaderSent    bool // as far as the handler knows
	isClosed        bool // the handler has returned
}

var errHeaderSent = errors.New("idem: the header was sent already, or the handler has returned")

// Method implements grpc.ServerTransportStream.
func (s *heldStream) Method() string { return s.method }

// SetHeader implements grpc.ServerTransportStream.
func (s *heldStream) SetHeader(md metadata.MD) error {
	return s.addHeader(md, false)
}

// SendHeader implements grpc.ServerTransportStream. The header is sent when the outcome is stored, because no part of a response
// may leave before that.
func (s *heldStream) SendHeader(md metadata.MD) error {
	return s.addHeader(md, true)
}

// addHeader is SetHeader, or SendHeader if isLast is set.
func (s *heldStream) addHeader(md metadata.MD, isLast bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isHeaderSent || s.isClosed {
		return errHeaderSent
	}
	s.header, s.isHeaderSent = metadata.Join(s.header, md), isLast
	return nil
}

// SetTrailer implements grpc.ServerTransportStream.
func (s *heldStream) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return errHeaderSent
	}
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

// close ends what the handler may set. A goroutine of the handler may go on.
func (s *heldStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
}

// reply returns what the handler has set and returned.
func (s *heldStream) reply(message any, err error) *rpc.Reply {
	s.close()
	return &rpc.Reply{Header: fieldsOf(s.header), Trailer: fieldsOf(s.trailer), Message: message, Status: statusOf(err)}
}
