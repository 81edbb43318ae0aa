package main

import (
	"os"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/operator"
)

// readOutcome reads the response that retries are to get, in the form that operator.ParseOutcome documents. An error of it is
// bad usage, and nothing has been done by then.
func readOutcome(file string) (*core.Response, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fail(badUsage, "the outcome cannot be read: %v", err)
	}
	outcome, err := operator.ParseOutcome(text)
	if err != nil {
		return nil, fail(badUsage, "the outcome in %s cannot be read: %v", file, err)
	}
	return outcome, nil
}
