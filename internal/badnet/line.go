package badnet

import (
	"net"
	"sync"
	"time"
)

// Line is a long way to a server, for processes that take no Dialer: whatever goes over it, in either direction, arrives so
// much later.
type Line struct {
	Addr string // where it begins

	target   string
	delay    time.Duration
	listener net.Listener
	cut      chan struct{}
	once     sync.Once
}

// NewLine returns a line to target, until it is cut.
func NewLine(target string, delay time.Duration) (*Line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{Addr: listener.Addr().String(), target: target, delay: delay, listener: listener, cut: make(chan struct{})}
	go l.accept()
	return l, nil
}

// Cut ends the line. What is under way does not arrive.
func (l *Line) Cut() {
	l.once.Do(func() {
		close(l.cut)
		_ = l.listener.Close()
	})
}

func (l *Line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		go l.carry(near, far)
		go l.carry(far, near)
	}
}

// parcel is what was read at once, and when it is to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry takes what comes from one end to the other until one is closed, or the line is cut: then both are.
func (l *Line) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	parcels, done := make(chan parcel, 1000), make(chan struct{})
	defer close(done)
	go collect(from, l.delay, parcels, done)
	for {
		select {
		case p, more := <-parcels:
			if !more || !l.deliver(p, to) {
				return
			}
		case <-l.cut:
			return
		}
	}
}

// deliver tells whether p has arrived.
func (l *Line) deliver(p parcel, to net.Conn) bool {
	select {
	case <-time.After(time.Until(p.due)):
		_, err := to.Write(p.bytes)
		return err == nil
	case <-l.cut:
		return false
	}
}

func collect(from net.Conn, delay time.Duration, parcels chan<- parcel, done <-chan struct{}) {
	defer close(parcels)
	for {
		bytes := make([]byte, 4096)
		n, err := from.Read(bytes)
		if err != nil {
			return
		}
		select {
		case parcels <- parcel{bytes[:n], time.Now().Add(delay)}:
		case <-done:
			return
		}
	}
}
