// Package openapi has only tests: real refusals, replays and status responses of the adapter for net/http are validated against
// docs/openapi.yaml. It is a module of its own so that users of the library do not need the validator.
package openapi
