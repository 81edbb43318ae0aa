package core

import (
	"crypto/sha256"
	"encoding/binary"
)

// recordKey names the record of a key, and of a key on one route when the route is given.
func recordKey(scope, key string, route ...string) [32]byte {
	return digest(nil, append([]string{"idem key 1", scope, key}, route...)...)
}

// fingerprint is what makes two requests the same: method, path, raw query and body. Headers are left out: a retry may
// come with another User-Agent or a fresh token (FPR-13).
func fingerprint(req *Request, body []byte) [32]byte {
	return digest(body, "idem request 1", req.Method, req.Path, req.RawQuery)
}

// digest is SHA-256 over parts and body, each preceded by its length in 8 bytes: no two different lists give the same
// input, wherever a separator may stand in them.
func digest(body []byte, parts ...string) (sum [32]byte) {
	buf := make([]byte, 0, 256)
	for _, p := range parts {
		buf = append(binary.BigEndian.AppendUint64(buf, uint64(len(p))), p...)
	}
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint64(buf, uint64(len(body))))
	h.Write(body)
	h.Sum(sum[:0])
	return sum
}
