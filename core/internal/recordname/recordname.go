// Package recordname makes the names of records, which are hashes: see driver.AppendRecordName.
package recordname

import (
	"encoding/base64"
	"strings"

	"github.com/go-idem/idem/core/internal/digest"
)

// scopeBytes is driver.ScopeBytes.
const scopeBytes = 8

// Naming is one way to name records. While an engine has earlier secrets, or its keys have just become one per route, a record
// may have a name under another naming than the engine's own.
type Naming struct {
	Hasher   digest.Hasher
	PerRoute bool
}

// All returns all namings of an engine: first the one for new records, then those under which it looks for earlier ones. previous
// has the earlier secrets. isChanging says that some keys may still have the other form of perRoute.
func All(secret []byte, previous [][]byte, perRoute, isChanging bool) (all []Naming) {
	routes := []bool{perRoute}
	if isChanging {
		routes = append(routes, !perRoute)
	}
	for _, secret := range append([][]byte{secret}, previous...) {
		hasher := digest.New(secret)
		for _, perRoute := range routes {
			all = append(all, Naming{hasher, perRoute})
		}
	}
	return all
}

// ParseKind parses the Kind of a core.Task. The Kind of a task is one word. Operators also name requests by a Kind, which is ""
// or a method and path, such as "POST /refunds".
func ParseKind(kind string) (method, path string, isTask bool) {
	method, path, isRoute := strings.Cut(kind, " ")
	if kind == "" || isRoute {
		return method, path, false
	}
	return "", "", true
}

// OfRequest returns the name of the record of a request.
func (n Naming) OfRequest(scope, key, method, path string) [32]byte {
	if n.PerRoute {
		return n.name(scope, key, method, path)
	}
	return n.name(scope, key)
}

// OfTask returns the name of the record of a task. A kind is one word, so no task has the name of a request.
func (n Naming) OfTask(scope, key, kind string) [32]byte { return n.name(scope, key, kind) }

// name returns the name of a record. It begins with a hash of the scope alone, so that an operator can find all records of one
// caller.
func (n Naming) name(scope, key string, route ...string) (name [32]byte) {
	ofScope := n.Scope(scope)
	ofKey := n.Hasher.Sum(nil, append([]string{"idem key 2", scope, key}, route...)...)
	copy(name[:], ofScope[:])
	copy(name[scopeBytes:], ofKey[:])
	return name
}

// Scope returns the first bytes of all names of a scope.
func (n Naming) Scope(scope string) (prefix [scopeBytes]byte) {
	sum := n.Hasher.Sum(nil, "idem scope 2", scope)
	return [scopeBytes]byte(sum[:scopeBytes])
}

// instancePrefix begins every instance.
const instancePrefix = "urn:idem:"

// Instance returns the URI that stands for a record in problems. It has the part of the name after the dot, which logs and the
// keys of Redis have, too. It lacks the part of the scope, which would show that two instances are of one caller, and which a
// reader could compare with the hashes of scopes that can be guessed.
func Instance(name [32]byte) string {
	return instancePrefix + base64.RawURLEncoding.EncodeToString(name[scopeBytes:])
}

// ParseInstance returns the part of a record's name that an Instance has, also without the beginning of the URI. It returns false
// for any other text.
func ParseInstance(text string) (part [32 - scopeBytes]byte, ok bool) {
	text = strings.TrimPrefix(text, instancePrefix)
	if len(text) != base64.RawURLEncoding.EncodedLen(len(part)) {
		return part, false
	}
	n, err := base64.RawURLEncoding.Strict().Decode(part[:], []byte(text)) // skips line breaks
	return part, err == nil && n == len(part)
}
