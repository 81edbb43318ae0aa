package pgstore

import "time"

// SetIdleTimeout sets how long the connection that listens may be silent before it is asked whether it stands.
func (s *Store) SetIdleTimeout(d time.Duration) { s.listener.idleTimeout = d }

// SetReplyTimeout sets how long the connection that listens has to answer.
func (s *Store) SetReplyTimeout(d time.Duration) { s.listener.replyTimeout = d }
