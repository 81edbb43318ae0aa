// Package bare has only tests: they compare guarded routes with the same routes without the engine, byte for byte on the wire, in
// chains of the frameworks' own middleware. It is a module of its own so that users of the library do not need gin-contrib.
package bare
