package core

import "context"

// SingleTenant is a Config.Scope for services with one tenant: all callers share one set of keys. A caller that guesses a key
// and its request can then read the response that is stored under the key.
func SingleTenant(context.Context, *Request) string { return "single-tenant" }

// ScopeByAdapter is a Config.Scope for engines whose adapters all have a Scope option, which reads the framework's context. A
// request through an adapter without that option has no scope, and is refused with 401.
func ScopeByAdapter(context.Context, *Request) string { return "" }
