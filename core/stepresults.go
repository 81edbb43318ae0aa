package core

import "sync"

// stepResults has the results of a run's steps, and the steps in progress.
type stepResults struct {
	mu         sync.Mutex
	loaded     bool
	kept       map[string][]byte
	inProgress map[string]chan struct{} // closed at the end of the step
}

// begin marks a step as in progress. If it is in progress already, begin returns the channel that is closed at its end.
func (s *stepResults) begin(name string) (done, other chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other = s.inProgress[name]; other != nil {
		return nil, other
	}
	if s.inProgress == nil {
		s.inProgress = map[string]chan struct{}{}
	}
	done = make(chan struct{})
	s.inProgress[name] = done
	return done, nil
}

// end marks a step as ended, and closes its channel.
func (s *stepResults) end(name string, done chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.inProgress, name)
	close(done)
}
