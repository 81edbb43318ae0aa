package badnet

import (
	"net"
	"sync"
	"time"
)

// Line is a proxy that delays all traffic to and from a server. It is for processes that take no Dialer.
type Line struct {
	Addr string // the address that clients connect to

	target   string
	delay    time.Duration
	listener net.Listener
	cut      chan struct{}
	once     sync.Once
}

// NewLine returns a line to target, which works until it is cut.
func NewLine(target string, delay time.Duration) (*Line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{Addr: listener.Addr().String(), target: target, delay: delay, listener: listener, cut: make(chan struct{})}
	go l.accept()
	return l, nil
}

// Cut ends the line. Bytes that have not arrived yet are lost.
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

// parcel is the bytes of one read, and the time at which they must arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry copies bytes from one end to the other, until one end is closed or the line is cut. Then it closes both ends.
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

// deliver writes p when it is due, and reports whether that succeeded.
func (l *Line) deliver(p parcel, to net.Conn) bool {
	select {
	case <-time.After(time.Until(p.due)):
		_, err := to.Write(p.bytes)
		return err == nil
	case <-l.cut:
		return false
	}
}

// collect reads from an end of the line into parcels.
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
