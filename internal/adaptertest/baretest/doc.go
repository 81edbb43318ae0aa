// Package baretest compares guarded routes with the same routes without the engine, byte for byte on the wire, in chains of the
// frameworks' own middleware. A module that uses it has the handlers, the chains, and a reason for each difference. The files in
// its testdata/differences have the exact differences, and go test -update writes them.
package baretest
