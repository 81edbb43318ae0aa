package core

import "context"

// SingleTenant is the Config.Scope of a service with one tenant: every caller shares one set of keys.
// Whoever can guess a key can then read the answer kept under it.
func SingleTenant(context.Context, *Request) string { return "single-tenant" }

// ScopeByAdapter is the Config.Scope of an engine whose adapters all carry a Scope option. A request that comes
// through an adapter without one has no scope and is refused.
func ScopeByAdapter(context.Context, *Request) string { return "" }
