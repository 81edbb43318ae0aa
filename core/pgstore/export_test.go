package pgstore

import "time"

// SetQuiet sets how long the connection that listens may be silent before it is asked whether it stands.
func (s *Store) SetQuiet(d time.Duration) { s.wakes.quiet = d }
