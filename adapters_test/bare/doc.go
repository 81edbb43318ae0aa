// Package bare has only tests: they compare guarded routes with the same routes without the engine, byte for byte on the wire, in
// chains of the frameworks' own middleware. It is a module of its own so that users of the library do not need gin-contrib.
//
// The files in testdata/differences have all differences that there are, exactly, and go test -update writes them. Each difference
// needs a reason in differences_test.go. A run without the race detector fails for a difference that is not in the files, for an
// entry that no comparison met, and for a reason that explains nothing. With the race detector the tests run a sample.
package bare
