package core

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/internal/digest"
	"github.com/go-idem/idem/core/internal/recordname"
)

func TestAllRecordsOfOneScopeShareTheStartOfTheirNames(t *testing.T) {
	secret := digest.New([]byte("0123456789abcdef"))
	for _, h := range []digest.Hasher{plainHasher, secret} {
		n, perRoute := recordname.Naming{Hasher: h}, recordname.Naming{Hasher: h, PerRoute: true}
		name, prefix := n.OfRequest("tenant", "K", "POST", "/"), n.Scope("tenant")
		for _, other := range [][32]byte{
			n.OfRequest("tenant", "L", "POST", "/"), perRoute.OfRequest("tenant", "K", "POST", "/"), n.OfTask("tenant", "K", "JOB"),
		} {
			assert.Equal(t, name[:driver.ScopeBytes], other[:driver.ScopeBytes])
			assert.Equal(t, prefix[:], other[:driver.ScopeBytes])
			assert.NotEqual(t, name[driver.ScopeBytes:], other[driver.ScopeBytes:])
		}
		for _, scope := range []string{"", "tenan", "tenantK", "Tenant"} {
			other := n.OfRequest(scope, "K", "POST", "/")
			assert.NotEqual(t, name[:driver.ScopeBytes], other[:driver.ScopeBytes])
			assert.NotEqual(t, name[driver.ScopeBytes:], other[driver.ScopeBytes:], "the part of the key tells scopes apart too")
		}
	}
	assert.NotEqual(t, recordname.Naming{Hasher: plainHasher}.Scope("tenant"), recordname.Naming{Hasher: secret}.Scope("tenant"),
		"a caller that guesses a scope cannot find its records")
}

func TestSeparatorsInsideScopeAndKeyDoNotMoveTheBorder(t *testing.T) {
	n := recordname.Naming{Hasher: plainHasher}
	for _, c := range []struct{ scope, key, otherScope, otherKey string }{
		{"a:b", "c", "a", "b:c"},
		{"a", "bc", "ab", "c"},
		{"a\x00", "b", "a", "\x00b"},
		{"ab", "", "", "ab"},
		{"a", "b", "b", "a"},
		{"a\x00\x00\x00\x00\x00\x00\x00\x01b", "", "a", "b"},
	} {
		assert.NotEqual(t, n.OfRequest(c.scope, c.key, "", ""), n.OfRequest(c.otherScope, c.otherKey, "", ""), "%q", c)
	}
	assert.NotEqual(t, n.OfRequest("POST", "/", "", ""), fingerprintOf(&Request{Method: "POST", Path: "/"}, nil),
		"a record's name must not be a fingerprint")
}
