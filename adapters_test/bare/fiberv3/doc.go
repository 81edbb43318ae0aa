// Package fiberv3 has only tests: it does for Fiber v3 what package bare does for the other frameworks. It is a module of its own
// because the majors of Fiber need different versions of fasthttp.
package fiberv3
