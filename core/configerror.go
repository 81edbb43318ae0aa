package core

import (
	"fmt"
	"reflect"
	"slices"
	"time"
)

// ConfigError describes one bad field of a [Config]. The error of [New] joins one for every bad field; errors.As finds the first.
type ConfigError struct {
	Field  string // as written in Go, e.g. "Lease.Duration"
	Reason string // what is wrong and what to set instead
}

// Error returns the name of the field and the reason.
func (e *ConfigError) Error() string { return "idem: Config." + e.Field + ": " + e.Reason }

// configErrors collects the bad fields of a config.
type configErrors []error

// require adds an error for the field unless ok.
func (f *configErrors) require(ok bool, field, format string, args ...any) {
	if !ok {
		*f = append(*f, &ConfigError{field, fmt.Sprintf(format, args...)})
	}
}

// requireDuration requires that d is from least to 100 years.
func (f *configErrors) requireDuration(d, least time.Duration, field string) {
	f.require(d >= least && d <= maxDuration, field, "%v: must be at least %v and at most 100 years", d, least)
}

// Upper bounds of options.
const (
	maxDuration = 100 * 365 * 24 * time.Hour
	maxLease    = maxDuration / 100
)

// requireSecret requires that the secret is fit for an HMAC, or empty.
func (f *configErrors) requireSecret(secret []byte, field string) {
	f.require(len(secret) == 0 || len(secret) >= 16, field, "%d bytes: must have at least 16, or none", len(secret))
	isSet := slices.ContainsFunc(secret, func(b byte) bool { return b != 0 })
	f.require(len(secret) == 0 || isSet, field,
		"has nothing but zeros: it was allocated, and not filled; read it from a secret store, or make one with "+
			"crypto/rand")
}

// isNil reports whether v is nil, or an interface that holds a nil pointer or the like, whose methods would panic at the first
// request.
func isNil(v any) bool {
	switch value := reflect.ValueOf(v); value.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice:
		return value.IsNil()
	}
	return false
}
