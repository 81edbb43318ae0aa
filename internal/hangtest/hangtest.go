// Package hangtest checks that the calls of a package end in time when a server does not reply.
package hangtest

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Slack is how much later than its bound a call may end, because the machine may be busy.
const Slack = time.Second

// RequireAll fails the test unless calls has each exported function and method of the package in dir that takes a
// context.Context or an *http.Request, and nothing else. Methods are named like "Store.Begin". So a new call cannot be left out
// of a test. Calls that reach no server belong into the map as well, for example with the value nil.
func RequireAll[F any](t *testing.T, dir string, calls map[string]F) {
	t.Helper()
	listed := []string{}
	for name := range calls {
		listed = append(listed, name)
	}
	require.ElementsMatch(t, exported(t, dir), listed, "the exported calls with a context, and those of the test")
}

// exported returns the names of the functions that RequireAll demands.
func exported(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Name.IsExported() && takesContext(f) {
				names = append(names, nameOf(f))
			}
		}
	}
	return names
}

// takesContext reports whether a function takes a context.Context or an *http.Request.
func takesContext(f *ast.FuncDecl) bool {
	for _, param := range f.Type.Params.List {
		kind := param.Type
		if pointer, ok := kind.(*ast.StarExpr); ok {
			kind = pointer.X
		}
		if selector, ok := kind.(*ast.SelectorExpr); ok && (selector.Sel.Name == "Context" || selector.Sel.Name == "Request") {
			return true
		}
	}
	return false
}

// nameOf returns the name of a function, or the type and name of a method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	kind := f.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	return kind.(*ast.Ident).Name + "." + f.Name.Name
}

// EndInTime makes a call this many times at once, each with a context that ends after bound. Each must return an error by then.
func EndInTime(t *testing.T, count int, bound time.Duration, call func(context.Context) error) {
	t.Helper()
	took := make(chan time.Duration)
	for range count {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			began := time.Now()
			assert.Error(t, call(ctx))
			took <- time.Since(began)
		}()
	}
	for range count {
		assert.Less(t, <-took, bound+Slack)
	}
}

// NoGoroutine waits until no goroutine executes a function of the packages with these paths, and fails the test if that takes
// longer than bound.
func NoGoroutine(t *testing.T, bound time.Duration, packages ...string) {
	t.Helper()
	assert.Eventually(t, func() bool { return goroutineIn(packages) == "" }, bound, 50*time.Millisecond)
	assert.Empty(t, goroutineIn(packages), "a goroutine is left")
}

// goroutineIn returns the stack of one goroutine that executes a function of these packages, or "".
func goroutineIn(packages []string) string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		for _, path := range packages {
			if strings.Contains(stack, "\n"+path+".") {
				return stack
			}
		}
	}
	return ""
}
