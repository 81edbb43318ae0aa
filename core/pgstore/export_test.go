package pgstore

import "time"

// SetQuiet sets how long the connection that listens may be silent before it is asked whether it stands.
func (s *Store) SetQuiet(d time.Duration) { s.wakes.quiet = d }

// SetAnswer sets how long the connection that listens has to answer.
func (s *Store) SetAnswer(d time.Duration) { s.wakes.answer = d }
