package driver

import "fmt"

// Finding is a setting of a server, of a pooler or of a client that weakens what the engine promises. The function Check of a store
// returns one for each.
type Finding struct {
	Setting string // the name that the server or the client uses
	Found   string // its value
	Why     string // what can happen
	Fix     string // what to set instead
}

// String returns the finding as one line for a log.
func (f Finding) String() string {
	return fmt.Sprintf("%s is %s: %s; %s", f.Setting, f.Found, f.Why, f.Fix)
}
